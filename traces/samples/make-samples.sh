#!/usr/bin/env bash
# Record the samples that lab mailserver makes, each on a fresh ext4; nothing is installed.
# usage: make-samples.sh [-o DIRECTORY] [NAME]...       -o: default: this directory
# Exit code 3: in some sample a session failed, or it is incomplete; all others are made.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
output=$here
while getopts o: option; do
	case $option in
	o) output=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
spoolscope=$here/../../.venv/bin/spoolscope
status=0

make_one() {
	local server=$1 name=$2
	shift 2
	local ended=0
	"$spoolscope" lab mailserver --server "$server" --on ext4 --seconds 24 --seed 1 --force -o "$output/$name" "$@" || ended=$?
	[[ $ended == 0 || $ended == 3 ]] || exit "$ended"
	[[ $ended == 0 ]] || status=$ended
}
[[ $# -gt 0 ]] || set -- courier cyrus exim-mdbox desktop backup
for name in "$@"; do
	case $name in
	courier) make_one courier "$name" --rate 8 --users 60 --messages 8 ;;
	cyrus) make_one cyrus "$name" --rate 8 --users 60 --messages 8 ;;
	exim-mdbox) make_one exim "$name" --format mdbox --rate 8 --users 60 --messages 8 ;;
	desktop)
		make_one dovecot "$name" --rate 4 --users 2 --messages 60 --elsewhere \
			--package isync --package notmuch --beside "sh ${here@Q}/rig/desktop.sh 22"
		;;
	backup)
		make_one dovecot "$name" --rate 3 --users 24 --messages 12 --package rsync \
			--package borgbackup --package restic --beside "sh ${here@Q}/rig/backup.sh"
		;;
	*)
		echo "make-samples.sh: error: no sample $name; give courier, cyrus, exim-mdbox, desktop or backup" >&2
		exit 2
		;;
	esac
done
exit "$status"
