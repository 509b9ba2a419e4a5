#!/bin/sh
# What runs on a remote host: functions for any POSIX shell and the tools of macOS and Linux. host_scripts.py sends all
# of it with the name of the one to call.
#
# Everything of a run is below ~/.gatekeeper: runs/RUN is its run directory; jobs/RUN holds its inputs and
#
#   job.json    who started what, as the local side wrote it
#   pid         of gatekeeper
#   supervisor  of the shell that waits for it
#   exit        its exit code
#   log         what it printed
#   cancelled   who cancelled it
#   fetched     it was downloaded
#
# The variables that no function sets are set by the local side, whatever characters they hold; `run` is always a name
# without slashes. A process counts as the run's own by its command line, which holds the name of the run: its number
# alone may be another program's after a restart.
# shellcheck disable=SC2154

umask 077
# `uv tool install` puts gatekeeper into ~/.local/bin, which is on few a PATH of a shell that ssh starts.
PATH=$PATH:$HOME/.local/bin:/opt/homebrew/bin:/usr/local/bin
export PATH
base=$HOME/.gatekeeper

is_alive() { # the process of the run $1 whose number is in the file $2
  pid=$(cat "$base/jobs/$1/$2" 2>/dev/null) && [ -n "$pid" ] || return 1
  case $(ps -ww -o command= -p "$pid" 2>/dev/null) in
  *"$1"*) return 0 ;;
  *) return 1 ;;
  esac
}

find_state() { # of the run $1: running; ended, by an exit code; died
  if [ -f "$base/jobs/$1/exit" ]; then
    state=ended
  elif is_alive "$1" supervisor || is_alive "$1" pid; then
    state=running
  elif [ -f "$base/jobs/$1/exit" ]; then # it ended between the two
    state=ended
  else
    state=died
  fi
}

print_job() { # the run $1 in one line: name, state, exit code, cancelled by, fetched, finished, job.json
  find_state "$1"
  job=$base/jobs/$1
  code='' cancelled='' fetched='' finished=''
  [ "$state" != ended ] || code=$(head -c 10 "$job/exit" | tr -d ' \t\n')
  [ ! -f "$job/cancelled" ] || cancelled=$(head -c 200 "$job/cancelled" | tr '\t\n' '  ')
  [ ! -f "$job/fetched" ] || fetched=yes
  [ ! -f "$base/runs/$1/SHA256SUMS" ] || finished=yes
  printf '%s\t%s\t%s\t%s\t%s\t%s\t' "$1" "$state" "$code" "$cancelled" "$fetched" "$finished"
  head -c 10000 "$job/job.json" | tr '\t\n' '  '
  printf '\n'
}

list_jobs() {
  cd "$base/jobs" 2>/dev/null || exit 0
  for name in *; do
    [ ! -f "$name/job.json" ] || print_job "$name"
  done
}

print_versions() { # what is installed, a name and a value a line
  printf 'clock\t%s\n' "$(date +%s)"
  for name in gatekeeper uv hf python3 rsync; do
    place=$(command -v "$name") || continue
    # The placeholder of macOS opens a window that offers to install Python.
    if [ "$place" = /usr/bin/python3 ] && [ -x /usr/bin/xcode-select ]; then
      /usr/bin/xcode-select -p >/dev/null 2>&1 || continue
    fi
    printf '%s\t%s\n' "$name" "$place"
  done
  if command -v fdesetup >/dev/null; then
    printf 'filevault\t%s\n' "$(fdesetup status 2>/dev/null | head -n 1)"
  fi
  if command -v gatekeeper >/dev/null; then
    printf 'versions\t%s\n' "$(gatekeeper --version </dev/null 2>/dev/null | tr '\t\n' ' ;')"
  fi
}

make_folder() { # for what is copied to $target; prints `rsync` where that is installed
  mkdir -p "$base/$target" || exit
  if command -v rsync >/dev/null; then echo rsync; fi
}

unpack() { # an archive from stdin
  tar -xf - -C "$base/$target"
}

check_inputs() { # prints what `gatekeeper $command` says of them: exit code, document, an empty line, errors
  set -e
  job=$base/jobs/$run
  mkdir -p "$job"
  cd "$base"
  code=0
  set -- "$command" --json
  [ -z "$slo" ] || set -- "$@" "jobs/$run/$slo"
  gatekeeper "$@" </dev/null >"$job/answer.json" 2>"$job/answer.txt" || code=$?
  printf '%s\n' "$code"
  head -c 2000000 "$job/answer.json"
  printf '\n\n'
  head -c 10000 "$job/answer.txt"
  rm -f "$job/answer.json" "$job/answer.txt"
}

remove_inputs() { # of a run that was not started
  [ -f "$base/jobs/$run/job.json" ] || rm -rf "$base/jobs/$run"
}

start_run() { # with the options of certify; prints the run's line, or that of another one that is under way
  set -e
  job=$base/jobs/$run
  if [ -f "$job/job.json" ] && [ -z "$resume" ]; then # the answer to the first try was lost with its connection
    print_job "$run"
    exit 0
  fi
  for other in "$base"/jobs/*/job.json; do
    [ -f "$other" ] || continue
    name=${other%/job.json}
    name=${name##*/}
    find_state "$name"
    if [ "$state" = running ]; then
      print_job "$name"
      remove_inputs
      exit 0
    fi
  done
  mkdir -p "$base/runs"
  rm -f "$job/exit" "$job/pid" "$job/supervisor" "$job/cancelled" "$job/fetched"
  # On a disk that is full by then there is room in what these two files have already.
  printf '     \n' >"$job/exit.part"
  date >>"$job/log"
  printf '%s' "$json" >"$job/job.json.part"
  mv "$job/job.json.part" "$job/job.json"
  cd "$base"
  export run slo
  # ssh without a terminal gives each command a session of its own; nohup also keeps away what ends it.
  # shellcheck disable=SC2016
  nohup /bin/sh -c '
    echo $$ >"jobs/$run/supervisor"
    gatekeeper certify "jobs/$run/$slo" --output "runs/$run" --quiet "$@" </dev/null >>"jobs/$run/log" 2>&1 &
    echo $! >"jobs/$run/pid"
    wait $!
    printf "%s\n" $? 1<>"jobs/$run/exit.part"
    mv "jobs/$run/exit.part" "jobs/$run/exit"
  ' "gatekeeper-run $run" "$@" </dev/null >>"$job/log" 2>&1 &
  tries=0
  while [ ! -s "$job/pid" ] && [ ! -f "$job/exit" ] && [ "$tries" -lt 30 ]; do
    sleep 1
    tries=$((tries + 1))
  done
  print_job "$run"
}

follow_run() { # prints its events from byte $offset on, an empty line now and then; then its line and its last words
  file=$base/runs/$run/events.jsonl
  quiet=0
  printf '\n'
  while :; do
    find_state "$run"
    size=0
    [ ! -f "$file" ] || size=$(wc -c <"$file" | tr -d ' ')
    if [ "$size" -gt "$offset" ]; then
      tail -c +$((offset + 1)) "$file" | head -c $((size - offset))
      offset=$size
      quiet=0
    elif [ "$state" != running ]; then
      break
    else
      quiet=$((quiet + 1))
      [ $((quiet % 5)) != 0 ] || printf '\n'
      sleep 2
    fi
  done
  printf '\n'
  print_job "$run"
  tail -c 4000 "$base/jobs/$run/log" 2>/dev/null | tail -n 12 | tr '\t' ' ' | while read -r line; do
    printf 'log\t%s\n' "$line"
  done
}

print_run() { # the run directory as an archive; nothing where the run ended before it wrote one
  cd "$base/runs/$run" 2>/dev/null || exit 0
  COPYFILE_DISABLE=1 # no files with the attributes of macOS
  export COPYFILE_DISABLE
  tar --format=ustar -cf - . | gzip -c
}

mark_fetched() {
  printf '%s\n' "$who" >"$base/jobs/$run/fetched"
}

cancel_run() { # gatekeeper ends its servers and then itself; after $grace it is killed, and its guards end the servers
  find_state "$run"
  if [ "$state" != running ]; then
    echo ended
    exit 0
  fi
  printf '%s\n' "$who" >"$base/jobs/$run/cancelled"
  pid=$(cat "$base/jobs/$run/pid")
  kill -TERM "$pid"
  waited=0
  while is_alive "$run" pid && [ "$waited" -lt "$grace" ]; do
    sleep 1
    waited=$((waited + 1))
  done
  if is_alive "$run" pid; then
    kill -KILL "$pid"
    echo killed
  else
    echo graceful
  fi
}
