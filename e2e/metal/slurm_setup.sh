# A Slurm of the distribution's packages on this host, with accounting, as its administrator sets it up.
set -e
host=$(hostname)
mkdir -p /etc/slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
cat >/etc/slurm/slurm.conf <<END
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=700
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
PrologFlags=Contain
RequeueExit=199
ReturnToService=2
SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
UnkillableStepTimeout=180
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
$(slurmd -C | sed -n 's/ UpTime.*//; 1p') NodeAddr=127.0.0.1
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
printf 'ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n' >/etc/slurm/cgroup.conf
cat >/etc/slurm/slurmdbd.conf <<END
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=lab
StorageLoc=slurm_acct
LogFile=/var/log/slurm/slurmdbd.log
END
chown slurm: /var/lib/slurm/slurmctld /var/log/slurm /etc/slurm/slurmdbd.conf
chmod 600 /etc/slurm/slurmdbd.conf
grep -q '^cgroup_controllers' /etc/libvirt/qemu.conf || echo 'cgroup_controllers = [ ]' >>/etc/libvirt/qemu.conf
echo 'AllowUsers root' >/etc/ssh/sshd_config.d/slurm.conf # users come by jobs
systemctl reload ssh
systemctl enable --now munge mariadb
mariadb -e "CREATE DATABASE slurm_acct; CREATE USER slurm@localhost IDENTIFIED BY 'lab'; GRANT ALL ON slurm_acct.* TO slurm@localhost"
systemctl enable --now slurmdbd
until sacctmgr -i list cluster >/dev/null 2>&1; do sleep 1; done
sacctmgr -i add cluster lab || true # newer ones come by themselves
sacctmgr -i add account physics Cluster=lab
sacctmgr -i add user nobody Account=physics Cluster=lab
grange slurm install --write --default micro --allow-metal
mkdir -p /srv/slurmlab/home /etc/grange
chown nobody: /srv/slurmlab/home
# Several guests boot at a time on emulated processors, beside what another emulated host does.
sed -i '1i boot_timeout = "15m"' /etc/grange/agent.toml
printf '[batch]\nbinds = ["/srv/slurmlab/home"]\nrequeues = 2\nwait_timeout = "1m"\n' >>/etc/grange/agent.toml
systemctl restart libvirtd
systemctl restart grange-agent
# After a loss of power slurmctld ends when slurmdbd is not up yet: MariaDB takes a while.
for unit in slurmdbd slurmctld; do
	mkdir -p /etc/systemd/system/$unit.service.d
	printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=on-failure\nRestartSec=5\n' >/etc/systemd/system/$unit.service.d/again.conf
done
systemctl daemon-reload
systemctl enable --now slurmctld slurmd
until sinfo -h -o %T | grep -qx idle; do sleep 1; done
