#!/bin/sh
# A desktop's mail: mbsync fetches from the server beside it into Maildirs of a home directory on the
# spool, notmuch indexes, tags and searches them. Runs where lab mailserver --elsewhere has its server.
# usage: desktop.sh SECONDS
set -eu
end=$(($(date +%s) + $1))
home=/run/spool/home
mkdir -p "$home/mail"
chown -R vmail:vmail "$home"
cat >/tmp/mbsyncrc <<-RC
	IMAPAccount work
	Host 127.0.0.1
	Port 10143
	User user0001
	Pass spool
	SSLType None
	AuthMechs LOGIN

	IMAPStore far
	Account work

	MaildirStore near
	Path $home/mail/
	Inbox $home/mail/inbox
	SubFolders Verbatim

	Channel all
	Far :far:
	Near :near:
	Patterns *
	Create Both
	Expunge Both
	SyncState *
RC
cat >/tmp/notmuch <<-RC
	[database]
	path=$home/mail
	[user]
	name=User
	primary_email=user0001@example.com
	[new]
	tags=unread;inbox
	ignore=.mbsyncstate;.uidvalidity
	[maildir]
	synchronize_flags=true
RC
chmod 644 /tmp/mbsyncrc /tmp/notmuch
mail() { setpriv --reuid vmail --regid vmail --clear-groups env HOME="$home" NOTMUCH_CONFIG=/tmp/notmuch "$@"; }
round=0
while [ "$(date +%s)" -lt "$end" ]; do
	mail mbsync -q -c /tmp/mbsyncrc all
	mail notmuch new --quiet
	for word in invoice meeting backup; do mail notmuch search --limit=20 "subject:$word" >/dev/null; done
	mail notmuch show --format=mbox tag:unread >/dev/null
	mail notmuch tag -unread +read -- tag:unread
	mail notmuch tag +flagged -- "subject:budget and not tag:flagged"
	round=$((round + 1))
	# The first round fetches all; later ones what has arrived meanwhile.
	sleep 1
done
echo "$round rounds" >&2
