#!/usr/bin/env bash
# One night: certify an SLO on this or on a remote host, and print one line with the result.
#
#   soak/nightly.sh SLO.toml [--on HOST] [--runs DIR] [-- OPTIONS]
#   soak/nightly.sh --fleet [--hosts FILE] [--runs DIR] SLO.toml...
#
#   --fleet      measure every SLO on every host of the hosts file that it fits, by `gatekeeper fleet certify`
#   --hosts FILE the hosts file of the fleet [default: soak/hosts.toml]
#   --on HOST    measure on HOST, by `gatekeeper remote certify` [default: this machine]
#   --runs DIR   folder of run directories, logs and last.txt [default: runs]; use one folder for each host
#   -- OPTIONS   further options of `gatekeeper certify`
#
# The output of gatekeeper goes to DIR/nightly-TIME-SLO.log. Standard output gets one line, which is also in
# DIR/last.txt: outcome, figures or reason, host, run directory. The exit code is gatekeeper's own.
# GATEKEEPER names the program, if it is neither on PATH, nor in ~/.local/bin, nor in .venv next to this folder.
set -euo pipefail
# Written for bash 3.2 and the tools of macOS: no arrays, no flags that only GNU has. Except for the line above it is
# POSIX shell; a test runs it in one.

slo='' host='' hosts='' fleet='' runs=runs
name=nightly where='' run='' log='' line='' child='' stopped=''
code=4 # until gatekeeper has ended: an error of this script must not look like a verdict

write_last() { # write last.txt whole or not at all
  printf '%s\n' "$1" 2>/dev/null >"$runs/.last.$$" && mv -f "$runs/.last.$$" "$runs/last.txt" 2>/dev/null
}

# shellcheck disable=SC2329 # traps call them
at_end() {
  trap - EXIT
  set +e
  if [ -z "$line" ]; then line="$name: nightly.sh failed (exit code $code)"; fi
  line=$(printf '%s' "$line" | LC_ALL=C tr '\001-\037\177' ' ')
  if [ -n "$log" ] && ! write_last "$line" 2>/dev/null; then
    rm -f "$runs/.last.$$"
    line="$line; last.txt could not be written"
  fi
  printf '%s\n' "$line"
  exit "$code"
}

give_up() { # give_up CODE MESSAGE: end before gatekeeper is started
  code=$1
  line="$name: $2 (exit code $1)"
  exit "$1"
}

# shellcheck disable=SC2329
stop() { # the first signal ends gatekeeper, which keeps its records; further signals must not interrupt that
  trap '' TERM INT HUP
  stopped=yes
  if [ -n "$child" ]; then kill -s TERM "$child" 2>/dev/null || true; fi
}

reason() { # the last error of gatekeeper in the log, with its hint
  awk '/^gatekeeper: / { error = substr($0, 13); hint = "" }
       /^  hint: / { hint = substr($0, 9) }
       END { if (error != "") printf "%s%s", error, (hint == "" ? "" : " (" hint ")") }' "$log"
}

trap at_end EXIT

while [ $# -gt 0 ]; do
  case "$1" in
  --on | --hosts | --runs)
    if [ $# -lt 2 ] || [ -z "$2" ]; then give_up 2 "$1 needs a value"; fi
    case "$1" in
    --on) host=$2 ;;
    --hosts) hosts=$2 ;;
    --runs) runs=$2 ;;
    esac
    shift 2
    ;;
  --fleet)
    fleet=yes
    shift
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
  -*) give_up 2 "no option $1; see --help" ;;
  *)
    if [ -n "$fleet" ]; then # the rest are SLO files
      slo=fleet.toml
      break
    fi
    if [ -n "$slo" ]; then give_up 2 "expected one SLO file, got also $1"; fi
    slo=$1
    shift
    ;;
  esac
done
if [ -z "$slo" ]; then give_up 2 "needs an SLO file; see --help"; fi
if [ -n "$fleet" ] && [ -n "$host" ]; then give_up 2 "--on goes with one SLO, --fleet takes its hosts from the hosts file"; fi
if [ -z "$fleet" ] && [ -n "$hosts" ]; then give_up 2 "--hosts goes with --fleet; ssh knows HOST by ~/.ssh/config"; fi
name=${slo##*/}
name=${name%.toml}
here=$(uname -n)
where=${host:-$here}
if [ -n "$fleet" ]; then where="the hosts of ${hosts:-soak/hosts.toml}"; fi

if ! mkdir -p -- "$runs" 2>/dev/null || ! runs=$(CDPATH='' cd -- "$runs" 2>/dev/null && pwd); then
  give_up 4 "cannot create the folder $runs"
fi
stamp=$(date -u +%Y-%m-%dT%H%M%SZ)
try=''
# If a second night starts in the same second, the log exists already: take the next name.
until (set -C && : >"$runs/nightly-$stamp-$name$try.log") 2>/dev/null; do
  try=$((${try:-0} - 1))
  if [ "$try" -lt -9 ]; then give_up 4 "cannot write into $runs"; fi
done
run="$runs/$stamp-$name$try"
if [ -n "$fleet" ]; then run="$runs/fleet"; fi # the same each night: an interrupted one is continued
log="$runs/nightly-$stamp-$name$try.log"
# After a power cut, last.txt must not show the result of an earlier night.
write_last "$name: started at $stamp and has not ended; on $where; $run" || give_up 4 "cannot write into $runs"

program=${GATEKEEPER:-}
if [ -z "$program" ]; then
  beside=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)/.venv/bin/gatekeeper
  # `uv tool install` puts it into ~/.local/bin, which is on no PATH of launchd, systemd or cron.
  for program in gatekeeper "${HOME:-}/.local/bin/gatekeeper" "$beside"; do
    if command -v "$program" >/dev/null 2>&1; then break; fi
  done
fi
if ! command -v "$program" >/dev/null 2>&1; then
  give_up 2 "no gatekeeper on PATH or in ~/.local/bin; set GATEKEEPER=/path/to/gatekeeper"
fi

trap stop TERM INT HUP
if [ -n "$fleet" ]; then
  set -- fleet certify "$@" ${hosts:+--hosts "$hosts"} --runs "$run"
elif [ -n "$host" ]; then
  set -- remote certify "$slo" --on "$host" --output "$run" "$@"
else
  set -- certify "$slo" --output "$run" "$@"
fi
"$program" "$@" </dev/null >>"$log" 2>&1 &
child=$!
if [ -n "$stopped" ]; then kill -s TERM "$child" 2>/dev/null || true; fi
while :; do
  ended=0
  wait "$child" || ended=$?
  # A signal to this script ends the wait, not the child: then wait again, for the child's own code.
  kill -s 0 "$child" 2>/dev/null || break
done
# Of two signals at once bash reports the second as the code of a child that had one of its own.
if [ -n "$stopped" ] && { [ "$ended" = 129 ] || [ "$ended" = 143 ]; }; then ended=130; fi
child='' code=$ended

if [ -n "$fleet" ]; then # the last line of its table
  line=$(awk '/^[0-9]+ runs?: .*\(exit code [0-9]+\)$/ { last = "fleet: " $0 } END { printf "%s", last }' "$log")
elif [ -f "$run/SHA256SUMS" ]; then
  line=$("$program" report "$run" --format line 2>>"$log") || line=''
fi
case "$line" in
*"(exit code $code)"* | *"(exit code $code,"*) line="$line; on $where; $run" ;;
*) # no run, or one whose verdict has another exit code
  case "$code" in
  0 | 1) word='no verdict' code=4 ;; # both codes mean a verdict, and there is none
  2) word='nothing was run' ;;
  3) word='unproven' ;;
  130) word='interrupted' ;;
  *) word='gatekeeper failed' ;;
  esac
  because=$(reason) || because=''
  line="$name: $word (exit code $code)${because:+: $because}; on $where; $log"
  ;;
esac
exit "$code"
