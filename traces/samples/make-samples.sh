#!/usr/bin/env bash
# Record the samples that lab mailserver makes, each on a fresh ext4; nothing is installed.
# usage: make-samples.sh [-o DIRECTORY] [NAME]...       -o: default: this directory
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

make_one() {
	local server=$1 name=$2
	shift 2
	"$spoolscope" lab mailserver --server "$server" --on ext4 --seconds 24 --seed 1 --force -o "$output/$name" "$@"
}
[[ $# -gt 0 ]] || set -- courier cyrus exim-mdbox desktop backup
for name in "$@"; do
	case $name in
	courier) make_one courier "$name" --rate 8 --users 60 --messages 8 ;;
	cyrus) make_one cyrus "$name" --rate 8 --users 60 --messages 8 ;;
	exim-mdbox) make_one exim "$name" --format mdbox --rate 8 --users 60 --messages 8 ;;
	desktop)
		make_one dovecot "$name" --rate 4 --users 2 --messages 60 --elsewhere \
			--package isync --package notmuch --beside "sh $here/rig/desktop.sh 22"
		;;
	backup)
		make_one dovecot "$name" --rate 3 --users 24 --messages 12 --package rsync \
			--package borgbackup --package restic --beside "sh $here/rig/backup.sh"
		;;
	*)
		echo "make-samples.sh: error: no sample $name; give courier, cyrus, exim-mdbox, desktop or backup" >&2
		exit 2
		;;
	esac
done
