"""Names of well-known programs and of the kernel's own threads."""

import re

COMM_BYTES = 15
KNOWN = {  # names of programs that reveal nothing of a machine, cut as the kernel does
    name[:COMM_BYTES]
    for name in b"""
    dovecot anvil auth auth-worker config dict director dns-client doveadm doveadm-server doveconf
    dovecot-auth dovecot-lda deliver health-check imap imap-hibernate imap-login imap-urlauth
    imap-urlauth-login imap-urlauth-worker indexer indexer-worker ipc lmtp log managesieve
    managesieve-login old-stats pop3 pop3-login quota-status replicator aggregator script
    script-login sieve-filter sieve-test sievec ssl-params stats submission submission-login
    tcpwrap welcome decode2text.sh rawlog tika
    postfix master bounce cleanup defer discard dnsblog error fsstone local nqmgr oqmgr pickup
    pipe postalias postcat postconf postdrop postfix-script postkick postlock postlog postlogd
    postmap postmulti postqueue postscreen postsuper proxymap proxywrite qmgr qmqpd relay retry
    scache sendmail showq smtp smtpd spawn tlsmgr tlsproxy trace trivial-rewrite verify virtual
    newaliases mailq
    exim exim4 exim_dumpdb exim_tidydb exiqgrep opensmtpd smtpctl qmail-local qmail-lspawn
    qmail-queue qmail-remote qmail-rspawn qmail-send qmail-smtpd qmail-inject qmail-clean
    qmail-pop3d splogger tcpserver sendmail-mta courier courierd courieresmtp courieresmtpd
    courierlocal couriertcpd courierlogger authdaemond imapd imaplogin pop3d pop3login maildrop
    maildirmake reformail procmail formail lockfile mda fdm getmail fetchmail mbsync offlineimap
    cyrmaster cyr_expire cyr_dbtool cyrdump ctl_cyrusdb ctl_mboxlist idled lmtpd nntpd notifyd
    ptloader proxyd quota reconstruct squatter sync_client sync_server timsieved httpd tls_prune
    spamd spamc spamassassin sa-learn rspamd rspamc clamd clamscan clamdscan freshclam clamsmtpd
    amavisd amavisd-new amavis opendkim opendmarc milter-greylist postgrey policyd-spf postsrsd
    mailman mlmmj mail mailx mutt neomutt nmh stalwart stalwart-mail maddy jmapd
    sh bash dash ash zsh ksh busybox su sudo runuser setpriv login env nice ionice timeout xargs
    python perl ruby php lua java node awk gawk mawk sed grep egrep fgrep cat cp mv rm rmdir mkdir
    ln ls du df dd find tar cpio gzip pigz zstd xz bzip2 rsync rclone restic borg tail head sort
    uniq wc stat touch chmod chown chgrp sync truncate tee mktemp test true false sleep seq echo
    basename dirname readlink realpath install which id whoami date logger flock getfacl setfacl
    getfattr setfattr lsof fuser strace ltrace perf bpftrace bpftool ps top htop iotop vmstat
    iostat pgrep pkill kill killall mount umount mountpoint fsck fstrim e2fsck xfs_repair btrfs
    updatedb mlocate plocate locate make cc gcc ld git vi vim nano less more man ssh sshd scp sftp
    sftp-server ftpd proftpd vsftpd nfsd smbd nmbd winbindd rpcbind rpc.mountd
    init systemd systemd-journald systemd-logind systemd-udevd systemd-networkd systemd-resolved
    systemd-timesyncd systemd-tmpfiles systemd-executor systemd-shutdown systemd-cgroups-agent
    systemctl journalctl sd-pam udevd udev-worker dbus-daemon dbus-broker rsyslogd syslogd
    syslog-ng klogd logrotate logwatch fail2ban-server cron crond anacron atd run-parts savelog
    auditd agetty getty irqbalance chronyd ntpd multipathd lvmetad dmeventd mdadm smartd snapd
    containerd containerd-shim dockerd docker runc crun podman conmon apt apt-get dpkg
    unattended-upgrade mysqld mariadbd postgres redis-server memcached slapd nginx apache2 php-fpm
    haproxy
    postgresql zabbix_agentd node_exporter prometheus collectd telegraf munin-node netdata nrpe
    spoolscope spoolscope-record spoolscope-replay
    """.split()
}
_KERNEL_THREADS = frozenset(
    b"""
    kthreadd ksoftirqd kswapd kcompactd khugepaged khungtaskd ksmd kdevtmpfs kauditd kblockd
    oom_reaper writeback jfsCommit jfsIO jfsSync
    """.split()
)
# Names with a number or a device in them.
_KERNEL_PATTERNS = re.compile(
    rb"(jbd2|xfsaild|xfs-[a-z]+|xfs-[a-z]+-[a-z]+|ext4-[a-z-]+|dio|kdmflush|bioset|kcopyd)/"
    rb"(loop|sd|vd|xvd|hd|nvme|dm-|md|ram|zram|nbd|mmcblk|[\d:]|[a-z]?\d)[a-z\d:p-]*|"
    rb"(kworker|swapper|ksoftirqd|migration|cpuhp|idle_inject|watchdog|rcuo[bps]|irq|"
    rb"irq_work|backlog_napi|pr)/[\w:+.\-/]*|"
    rb"btrfs-(transacti|cleaner|endio\S*|worker\S*|delalloc|cache|fixup|flush_\S*|submit\S*|"
    rb"readahead|freespace|delayed-m|qgroup-\S*|scrub\S*|uuid|balance|discard|compressed)|"
    rb"(f2fs_(ckpt|flush|discard|gc)|nilfs_segctor|segctord|reiserfs)\S*|"
    rb"rcu_[a-z_]+|(loop|kswapd|kcompactd|scsi_eh_|scsi_tmf_|nvme|dm-|md|kvm-|zram)[\d_a-z]{0,9}"
)


def is_kernel_thread(comm: bytes) -> bool:
    """Return whether a name is that of a thread of the kernel itself."""
    return comm in _KERNEL_THREADS or _KERNEL_PATTERNS.fullmatch(comm) is not None
