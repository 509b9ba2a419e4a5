#!/usr/bin/env bash
# One night: certify an SLO here or on another machine, rotate old runs, and say in one line how it ended.
#
#   soak/nightly.sh SLO.toml [--on HOST [--hosts FILE]] [--runs DIR] [--keep N] [-- WORDS]
#
#   --on HOST    measure there, by `gatekeeper remote certify`; without it, here
#   --hosts FILE where HOST is looked up [default: soak/hosts.toml, then ~/.config/gatekeeper/hosts.toml]
#   --runs DIR   where run directories, logs and last.txt go [default: runs]; give each host a folder of its own
#   --keep N     how many of the newest runs and logs stay [default: 14]; `gatekeeper prune --help` says what else stays
#   -- WORDS     the rest of the line goes to gatekeeper as it is
#
# Everything gatekeeper says goes to DIR/nightly-TIME-SLO.log. Standard output gets one line, which is also what
# DIR/last.txt holds: outcome, figures or reason, host, run directory. The exit code is gatekeeper's own.
# GATEKEEPER names the program, where it is neither on PATH nor in .venv beside this folder.
set -euo pipefail
# Written for the bash 3.2 and the tools of macOS: no arrays, no flags that only GNU has. But for the line above, any
# POSIX shell runs it, and a test has one do so.

slo='' host='' hosts='' runs=runs keep=14
name=nightly where='' run='' log='' line='' child='' signals=0
code=4 # until gatekeeper has said otherwise: what fails here is never taken for a verdict

tell() { # write last.txt whole or not at all
  printf '%s\n' "$1" 2>/dev/null >"$runs/.last.$$" && mv -f "$runs/.last.$$" "$runs/last.txt" 2>/dev/null
}

# shellcheck disable=SC2329 # traps call them
at_end() {
  trap - EXIT
  set +e
  if [ -z "$line" ]; then line="$name: nightly.sh failed (exit code $code)"; fi
  line=$(printf '%s' "$line" | LC_ALL=C tr '\001-\037\177' ' ')
  if [ -n "$log" ] && ! tell "$line" 2>/dev/null; then
    rm -f "$runs/.last.$$"
    line="$line; last.txt could not be written"
  fi
  printf '%s\n' "$line"
  exit "$code"
}

give_up() { # give_up CODE WORDS: there is nothing to run
  code=$1
  line="$name: $2 (exit code $1)"
  exit "$1"
}

# shellcheck disable=SC2329
stop() { # the first signal ends gatekeeper, which keeps what it measured; further ones must not disturb it at that
  signals=$((signals + 1))
  if [ "$signals" = 1 ] && [ -n "$child" ]; then kill -s TERM "$child" 2>/dev/null || true; fi
}

reason() { # what gatekeeper complained of last, and what it said to do
  awk '/^gatekeeper: / { said = substr($0, 13); hint = "" }
       /^  hint: / { hint = substr($0, 9) }
       END { if (said != "") printf "%s%s", said, (hint == "" ? "" : " (" hint ")") }' "$log"
}

trap at_end EXIT

while [ $# -gt 0 ]; do
  case "$1" in
  --on | --hosts | --runs | --keep)
    if [ $# -lt 2 ] || [ -z "$2" ]; then give_up 2 "$1 needs a value"; fi
    case "$1" in
    --on) host=$2 ;;
    --hosts) hosts=$2 ;;
    --runs) runs=$2 ;;
    --keep) keep=$2 ;;
    esac
    shift 2
    ;;
  -h | --help)
    trap - EXIT
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  --)
    shift
    break
    ;;
  -*) give_up 2 "there is no option $1; --help says which there are" ;;
  *)
    if [ -n "$slo" ]; then give_up 2 "one SLO file, and not also $1"; fi
    slo=$1
    shift
    ;;
  esac
done
if [ -z "$slo" ]; then give_up 2 "needs an SLO file; --help says how"; fi
case "$keep" in
*[!0-9]* | 0*) give_up 2 "--keep $keep is no number of runs" ;;
esac
name=${slo##*/}
name=${name%.toml}
here=$(uname -n)
where=${host:-$here}

if ! mkdir -p -- "$runs" 2>/dev/null || ! runs=$(CDPATH='' cd -- "$runs" 2>/dev/null && pwd); then
  give_up 4 "the folder $runs can not be made"
fi
stamp=$(date -u +%Y-%m-%dT%H%M%SZ)
try=''
# A second night of the same second finds the log there already, and takes the next name.
until (set -C && : >"$runs/nightly-$stamp-$name$try.log") 2>/dev/null; do
  try=$((${try:-0} - 1))
  if [ "$try" -lt -9 ]; then give_up 4 "nothing can be written into $runs"; fi
done
run="$runs/$stamp-$name$try"
log="$runs/nightly-$stamp-$name$try.log"
# What a power cut leaves must not be the last night's good news.
tell "$name: began at $stamp and has not ended; on $where; $run" || give_up 4 "nothing can be written into $runs"

program=${GATEKEEPER:-}
if [ -z "$program" ]; then
  beside=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)/.venv/bin/gatekeeper
  if command -v gatekeeper >/dev/null 2>&1; then program=gatekeeper; else program=$beside; fi
fi
if ! command -v "$program" >/dev/null 2>&1; then
  give_up 2 "no gatekeeper on PATH; GATEKEEPER=/path/to/gatekeeper names one"
fi

trap stop TERM INT HUP
if [ -n "$host" ]; then
  set -- remote certify "$slo" --on "$host" ${hosts:+--hosts "$hosts"} --out "$run" "$@"
else
  set -- certify "$slo" --out "$run" "$@"
fi
"$program" "$@" </dev/null >>"$log" 2>&1 &
child=$!
if [ "$signals" != 0 ]; then kill -s TERM "$child" 2>/dev/null || true; fi
while :; do
  before=$signals ended=0
  wait "$child" || ended=$?
  # A signal of ours ends the wait and not the child: then wait again, for the child's own code.
  if [ "$before" = "$signals" ]; then break; fi
done
child='' code=$ended

if [ -f "$run/SHA256SUMS" ]; then
  line=$("$program" report "$run" --format line 2>>"$log") || line=''
fi
case "$line" in
*"(exit code $code)"* | *"(exit code $code,"*) line="$line; on $where; $run" ;;
*) # no run, or one that gatekeeper did not stand by
  case "$code" in
  0 | 1) word='no verdict' code=4 ;; # both speak of a run, and there is none
  2) word='nothing was run' ;;
  3) word='unproven' ;;
  130) word='interrupted' ;;
  *) word='gatekeeper failed' ;;
  esac
  because=$(reason) || because=''
  line="$name: $word (exit code $code)${because:+: $because}; on $where; $log"
  ;;
esac

if [ "$signals" = 0 ]; then
  rotated=yes
  "$program" prune "$runs" --keep "$keep" --within 1d --unfinished 14d >>"$log" 2>&1 || rotated=''
  if [ -n "$host" ] && [ -f "$run/SHA256SUMS" ]; then
    "$program" remote prune --on "$host" ${hosts:+--hosts "$hosts"} --keep "$keep" >>"$log" 2>&1 || rotated=''
  fi
  if [ -z "$rotated" ]; then line="$line; old runs were not rotated, see $log"; fi
  set -- "$runs"/nightly-*.log # in the order of their times
  while [ $# -gt "$keep" ]; do
    rm -f -- "$1" || true
    shift
  done
fi
exit "$code"
