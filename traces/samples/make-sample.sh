#!/usr/bin/env bash
# Record the sample trace: a real Postfix and Dovecot under mixed load, on a loop filesystem.
# usage: make-sample.sh [-o TRACE] [-t ext4|xfs|btrfs] [-d SECONDS] [-l LOAD_FACTOR] [-k]
#   -o  the trace directory to make (default: traces/samples/postfix-dovecot)
#   -d  length of the recording (default 31; for long ones set RIG_SIZE, e.g. 4G)
#   -l  multiplies arrivals and sessions (default 1)
#   -k  keep names (default: pseudonymised)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
output=$here/postfix-dovecot
fstype=ext4 recorded=31 factor=1 names=()
while getopts o:t:d:l:k option; do
	case $option in
	o) output=$OPTARG ;;
	t) fstype=$OPTARG ;;
	d) recorded=$OPTARG ;;
	l) factor=$OPTARG ;;
	k) names=(--keep-names) ;;
	*) exit 2 ;;
	esac
done
# The load starts into a silent server and has drained before the recording ends: clients finish
# what they are at, which takes up to two seconds.
quiet_before=0.5
[[ $recorded =~ ^[0-9]+$ && $recorded -gt 3 ]] || { echo "rig: error: -d $recorded: give whole seconds, more than 3" >&2; exit 2; }
seconds=$((recorded - 3))
export RIG=/var/tmp/spoolscope-rig RIG_FS=$fstype
work=$(mktemp -d)

finish() {
	"$here/rig/rig.sh" down || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

scaled() { awk -v n="$1" -v f="$factor" 'BEGIN { printf "%d\n", n * f + 0.5 }'; }
load() {
	python3 "$here/rig/load.py" --seconds "$1" --rate "$(scaled 6)" --imap "$(scaled 16)" \
		--pop3 "$(scaled 3)" --smtp "$(scaled 4)"
}
# Most mail processes alive at one moment, looked at once a second until the file appears.
watch_processes() {
	local most=0 now
	while [[ ! -e $work/end ]]; do
		now=$(ps -eo comm= | grep -cE '^(imap|pop3|imap-login|pop3-login|lmtp|auth|smtpd|cleanup|qmgr|trivial-rewrite)$' || true)
		((now <= most)) || most=$now
		sleep 1
	done
	echo "$most" >"$work/processes"
}

"$here/rig/rig.sh" up
echo "rig: $fstype is up; warming up" >&2
load 6 >"$work/warm-up"
sleep 2
"$root/.venv/bin/spoolscope" record --spool "$RIG/spool" -o "$output" --force \
	-d $recorded "${names[@]}" >"$work/record.out" 2>"$work/record.err" &
recorder=$!
for _ in $(seq 200); do
	grep -qi recording "$work/record.err" && break
	kill -0 $recorder 2>/dev/null || break
	sleep 0.1
done
sleep $quiet_before
watch_processes &
watcher=$!
load $seconds | tee "$work/load"
touch "$work/end"
wait $watcher
wait $recorder || { cat "$work/record.err" >&2; exit 1; }
echo "rig: $(cat "$work/processes") mail processes at once" >&2
! grep -q 'failed:' "$work/load" || { echo "rig: error: a client failed (above); nothing else is wrong with the trace" >&2; exit 1; }
cat "$work/record.out"
