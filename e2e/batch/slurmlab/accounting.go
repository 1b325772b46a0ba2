package slurmlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// startAccounting brings up a database and slurmdbd, and an account for the jobs' user.
func (l *Lab) startAccounting(ctx context.Context) error {
	data := l.path("sql")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	// The database is this machine's also when Slurm is another Debian's: they meet on a port.
	sql := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		if l.o.Network != "" {
			name, args = "/usr/bin/nsenter", append([]string{"--net=" + l.o.Network, "--", name}, args...)
		}
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, "/"
		return cmd
	}
	install, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if _, err := run(sql(install, "/usr/bin/mariadb-install-db", "--no-defaults", "--datadir="+data, "--user=root",
		"--auth-root-authentication-method=normal", "--skip-test-db")); err != nil {
		return err
	}
	// It is thrown away: nothing has to survive a crash.
	socket := l.path("run/sql")
	mariadbd := sql(context.WithoutCancel(ctx), "/usr/sbin/mariadbd", "--no-defaults", "--datadir="+data, "--user=root",
		"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", l.ports.sql()), "--socket="+socket,
		"--pid-file="+l.path("run/sql.pid"), "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
		"--performance-schema=off", "--skip-name-resolve")
	if err := l.launch("mariadbd", mariadbd); err != nil {
		return err
	}
	root := func(statement string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := run(sql(ctx, "/usr/bin/mariadb", "--no-defaults", "--socket="+socket, "--user=root", "-e", statement))
		return err
	}
	if err := l.await(ctx, "mariadbd", func() bool { return exists(socket) && root("SELECT 1") == nil }); err != nil {
		return err
	}
	if err := root("CREATE DATABASE slurm_acct; CREATE USER slurm@'%' IDENTIFIED BY 'lab'; GRANT ALL ON slurm_acct.* " +
		"TO slurm@'%'"); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	conf := fmt.Sprintf(`AuthType=auth/munge
AuthInfo=socket=%[1]s/munge/munge.socket
DbdHost=%[2]s
DbdAddr=127.0.0.1
DbdPort=%[3]d
SlurmUser=root
DebugLevel=info
LogFile=%[1]s/log/slurmdbd.log
PidFile=%[1]s/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=%[4]d
StorageUser=slurm
StoragePass=lab
StorageLoc=slurm_acct
`, l.dir, host, l.ports.dbd(), l.ports.sql())
	if err := os.WriteFile(l.path("etc/slurmdbd.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	if err := l.StartSlurmdbd(ctx); err != nil {
		return err
	}
	sacctmgr := func(args ...string) error {
		_, err := l.Slurm(ctx, "root", "sacctmgr", append([]string{"-i"}, args...)...)
		return err
	}
	// It listens before it has made its tables.
	if err := l.await(ctx, "slurmdbd", func() bool {
		return (l.o.Network != "" || dials(l.ports.dbd())) && sacctmgr("list", "cluster") == nil
	}); err != nil {
		return err
	}
	if err := sacctmgr("add", "cluster", "grange"); err != nil {
		return err
	}
	if err := sacctmgr("add", "account", "physics", "Cluster=grange"); err != nil {
		return err
	}
	return sacctmgr("add", "user", User, "Account=physics", "Cluster=grange")
}

// StartSlurmdbd starts the accounting daemon, also again after it was killed.
func (l *Lab) StartSlurmdbd(ctx context.Context) error {
	return l.launch("slurmdbd", l.tool(context.WithoutCancel(ctx), "slurmdbd", "-D"))
}

// Accounted is what slurmdbd knows of a run of a job that has ended.
type Accounted struct {
	Cores     int
	Wall, CPU float64 // seconds
}

// Run names a run of a job. A slurmctld that was killed before it wrote its state down gives the IDs of jobs that have
// ended once more, and a job that is put back runs again.
func Run(job string, start time.Time) string { return fmt.Sprintf("%s@%d", job, start.Unix()) }

// Accounted are all runs by their names, without those that held the places of VMs.
func (p *programs) Accounted(ctx context.Context) (map[string]Accounted, error) {
	out, err := p.Slurm(ctx, "root", "sacct", "--noheader", "--allusers", "--duplicates", "--parsable2",
		"--starttime=now-1days", "--endtime=now", "--state=BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO",
		"--format=JobIDRaw,AllocCPUS,ElapsedRaw,TotalCPU,Start,JobName")
	if err != nil {
		return nil, err
	}
	all := map[string]Accounted{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 6 {
			return nil, fmt.Errorf("sacct says %q", line)
		}
		if strings.Contains(f[0], ".") { // of a step: without those in the list, a job has no CPU time
			continue
		}
		if strings.HasPrefix(f[5], "grange-hold-") || f[4] == "None" || f[4] == "Unknown" {
			continue
		}
		var a Accounted
		var minutes float64
		_, err1 := fmt.Sscanf(f[3], "%f:%f", &minutes, &a.CPU)
		a.CPU += 60 * minutes
		var err2, err3 error
		a.Cores, err2 = strconv.Atoi(f[1])
		a.Wall, err3 = strconv.ParseFloat(f[2], 64)
		start, err4 := time.ParseInLocation("2006-01-02T15:04:05", f[4], time.Local)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return nil, fmt.Errorf("sacct says %q: %w", line, err)
		}
		all[Run(f[0], start)] = a
	}
	return all, nil
}
