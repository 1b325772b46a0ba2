# Run by cloud-init's bootcmd on every boot: installs grange-guest from the seed CD and starts it.
set -e
cd=/run/grange/seed
mkdir -p "$cd" /usr/local/sbin
mount -t iso9660 -o ro LABEL=cidata "$cd"
program=grange-guest
case $(uname -m) in i?86) [ ! -e "$cd/grange-guest-386" ] || program=grange-guest-386 ;; esac
# A new file and a rename: the old program may be running.
cp "$cd/$program" /usr/local/sbin/.grange-guest.new
umount "$cd"
chmod 0755 /usr/local/sbin/.grange-guest.new
mv -f /usr/local/sbin/.grange-guest.new /usr/local/sbin/grange-guest
if [ -d /run/systemd/system ]; then
	mkdir -p /run/systemd/system
	cat >/run/systemd/system/grange-guest.service <<'UNIT'
[Unit]
Description=grange guest: runs the job of this VM
# The stage that writes files; newer releases of cloud-init call it cloud-init-network.
After=cloud-init.service cloud-init-network.service

[Service]
ExecStart=/usr/local/sbin/grange-guest
# A second one would know nothing of the job that the first has started.
Restart=no
KillMode=process
OOMScoreAdjust=-900
TasksMax=infinity
LimitNOFILE=1048576
UNIT
	systemctl daemon-reload
	systemctl start --no-block grange-guest.service
elif ! pidof grange-guest >/dev/null; then
	setsid /usr/local/sbin/grange-guest </dev/null >/var/log/grange-guest.log 2>&1 &
fi
