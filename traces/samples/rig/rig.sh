#!/usr/bin/env bash
# A Postfix and Dovecot of our own on a fresh loop filesystem; nothing of the system's is touched.
# usage: rig.sh up|down|stop|start        stop, start: the servers alone, between up and down
# settings: RIG, RIG_FS, RIG_SIZE, RIG_USERS in the environment
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
RIG=${RIG:-/var/tmp/spoolscope-rig}
RIG_FS=${RIG_FS:-ext4}
RIG_SIZE=${RIG_SIZE:-1G}
RIG_USERS=${RIG_USERS:-60}
uid=5000
spool=$RIG/spool

fail() { echo "rig: error: $1; $2" >&2; exit 1; }

check() {
	[[ $(id -u) == 0 ]] || fail "the rig mounts a filesystem and starts servers" "run it as root"
	local program
	for program in dovecot doveadm postfix "mkfs.$RIG_FS"; do
		command -v "$program" >/dev/null || fail "no $program" "run: .ci/setup sample"
	done
	dovecot --version | grep -q '^2\.3' ||
		fail "Dovecot $(dovecot --version | cut -d' ' -f1) has another configuration language" "use Dovecot 2.3 (Debian 12, Ubuntu 24.04)"
	[[ ! -e $RIG ]] || fail "$RIG exists" "end it with: $0 down"
}

make_spool() {
	mkdir -p "$spool" "$RIG"/{run/dovecot,state/dovecot,state/postfix,log,etc/postfix}
	chmod 755 "$RIG"
	truncate -s "$RIG_SIZE" "$RIG/image"
	case $RIG_FS in
	ext*) "mkfs.$RIG_FS" -q -F "$RIG/image" ;;
	*) "mkfs.$RIG_FS" -q -f "$RIG/image" ;;
	esac
	mount -o loop,noatime "$RIG/image" "$spool"
	mkdir "$spool/mail" "$spool/queue"
	chown $uid:$uid "$spool/mail"
	chown postfix: "$RIG/state/postfix"
}

render() {
	sed -e "s#@RIG@#$RIG#g; s#@SPOOL@#$spool#g; s#@UID@#$uid#g; s#@PASSWORD@#spool#g" \
		-e "s#@SMTP_PORT@#10025#g; s#@IMAP_PORT@#10143#g; s#@POP3_PORT@#10110#g" "$here/$1" >"$2"
}

up() {
	check
	make_spool
	render dovecot.conf.in "$RIG/etc/dovecot.conf"
	render main.cf.in "$RIG/etc/postfix/main.cf"
	render master.cf.in "$RIG/etc/postfix/master.cf"
	python3 "$here/prefill.py" "$spool/mail" --users "$RIG_USERS" --uid $uid
	start
}

start() {
	# Daemons must not keep our output open.
	dovecot -c "$RIG/etc/dovecot.conf" </dev/null &>"$RIG/log/start"
	postfix -c "$RIG/etc/postfix" start </dev/null &>>"$RIG/log/start"
	local port
	for port in 10025 10143 10110; do wait_for $port; done
}

wait_for() {
	for _ in $(seq 50); do
		(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
		sleep 0.2
	done
	fail "no server on port $1" "see $RIG/log"
}

stop() {
	[[ ! -f $RIG/etc/postfix/main.cf ]] || postfix -c "$RIG/etc/postfix" stop &>/dev/null || true
	[[ ! -f $RIG/etc/dovecot.conf ]] || doveadm -c "$RIG/etc/dovecot.conf" stop &>/dev/null || true
}

down() {
	[[ -e $RIG ]] || return 0
	stop
	for _ in $(seq 50); do
		mountpoint -q "$spool" || break
		umount "$spool" 2>/dev/null && break
		sleep 0.2
	done
	! mountpoint -q "$spool" || fail "$spool is still in use" "end what uses it (fuser -vm $spool), then: $0 down"
	rm -rf "$RIG"
}

case ${1:-} in
up | down | stop | start) "$1" ;;
*) echo "usage: rig.sh up|down|stop|start" >&2; exit 2 ;;
esac
