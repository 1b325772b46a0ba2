// Package gridlab puts a grid's computing element, ARC CE, in front of a lab's Slurm: with its own certificate
// authority, a virtual organisation, and a token issuer. Everything lives in a directory of its own and in
// /etc/grid-security; who starts one has an /etc that is not the machine's.
package gridlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options are what a computing element is made of.
type Options struct {
	Dir       string // the lab's directory
	Sessions  string // where jobs' session directories lie
	SlurmConf string // of the cluster
	User      string // local user that members of the organisation become
	// partition → further options of sbatch, as "--vm=atlas9": an image for each organisation
	Queues  map[string]string
	Runtime map[string]string // runtime environment → further options of sbatch
	Extra   string            // lines appended to arc.conf
}

// Lab is a running computing element.
type Lab struct {
	URL    string // of its REST interface
	dir    string
	issuer *issuer
	port   int
}

// Start brings the computing element up.
func Start(ctx context.Context, o Options) (*Lab, error) {
	l := &Lab{dir: filepath.Join(o.Dir, "grid")}
	if err := l.start(ctx, o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *Lab) start(ctx context.Context, o Options) error {
	for _, dir := range []string{"", "tmp", "bin", "control", "log", "run", "home"} {
		if err := os.MkdirAll(l.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.Sessions, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{o.Sessions, l.path("tmp")} { // everybody's, as /tmp is
		if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	if err := ownEtc(); err != nil {
		return err
	}
	if err := l.security(ctx); err != nil {
		return err
	}
	if err := l.slurmCommands(o.SlurmConf); err != nil {
		return err
	}
	if err := l.configure(o); err != nil {
		return err
	}
	if err := l.runtimes(ctx, o.Runtime); err != nil {
		return err
	}
	for _, daemon := range []string{"arc-arex-start", "arc-arex-ws-start"} {
		if out, err := l.run(ctx, nil, "/usr/share/arc/"+daemon); err != nil {
			return fmt.Errorf("%s: %w\n%s", daemon, err, out)
		}
	}
	return l.awaitPort(ctx)
}

// ownEtc empties /etc/grid-security, if that is not the machine's.
func ownEtc() error {
	var root, etc syscall.Stat_t
	if err := errors.Join(syscall.Stat("/", &root), syscall.Stat("/etc", &etc)); err != nil {
		return err
	}
	if root.Dev == etc.Dev {
		return errors.New("/etc is the machine's: a computing element of our own needs another")
	}
	return errors.Join(os.RemoveAll("/etc/grid-security"), os.MkdirAll(trusted, 0o755))
}

// trusted is where grids look for certificates of authorities.
const trusted = "/etc/grid-security/certificates"

// command makes a process of the computing element or of its clients.
func (l *Lab) command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + l.path("home"),
		"TMPDIR=" + l.path("tmp"), "ARC_CONFIG=" + l.path("arc.conf")}, env...)
	cmd.Dir = l.path("home")
	cmd.WaitDelay = time.Second // daemons keep what they inherit open
	return cmd
}

func (l *Lab) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := l.command(ctx, env, name, args...).CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return string(out), err
}

// security makes the authority, the certificates of site, organisation and people, and what the site trusts.
func (l *Lab) security(ctx context.Context) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := writePEM(l.path("ca.pem"), "CERTIFICATE", ca.cert.Raw, 0o644); err != nil {
		return err
	}
	var hashes []string
	for _, kind := range []string{"-subject_hash", "-subject_hash_old"} {
		out, err := l.run(ctx, nil, "/usr/bin/openssl", "x509", "-noout", kind, "-in", l.path("ca.pem"))
		if err != nil {
			return fmt.Errorf("openssl: %w: %s", err, out)
		}
		hashes = append(hashes, strings.TrimSpace(out))
	}
	if err := ca.trust(trusted, hashes); err != nil {
		return err
	}
	for _, c := range []struct {
		name, cn string
		host     bool
	}{{"site", siteName, true}, {"voms", vomsName, true}, {"user", userName, false}, {"other", otherName, false}} {
		if err := ca.issue(l.dir, c.name, c.cn, c.host); err != nil {
			return err
		}
	}
	const vo = "/etc/grid-security/vomsdir/atlas"
	if err := os.MkdirAll(vo, 0o755); err != nil {
		return err
	}
	lsc := fmt.Sprintf("%s/CN=%s\n%s/CN=%s\n", realm, vomsName, realm, caName)
	if err := os.WriteFile(filepath.Join(vo, vomsName+".lsc"), []byte(lsc), 0o644); err != nil {
		return err
	}
	// Without them the computing element searches primes of its own, on all processors, for many minutes. These are RFC
	// 7919's.
	if out, err := l.run(ctx, nil, "/usr/bin/openssl", "genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt",
		"group:ffdhe2048", "-out", l.path("control/dhparam.pem")); err != nil {
		return fmt.Errorf("openssl: %w: %s", err, out)
	}
	l.issuer, err = startIssuer(l.path("site.pem"), l.path("site.key"))
	return err
}

// slurmCommands lets the computing element use the lab's cluster and no other.
func (l *Lab) slurmCommands(conf string) error {
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct"} {
		script := fmt.Sprintf("#!/bin/sh\nSLURM_CONF=%s exec /usr/bin/%s \"$@\"\n", conf, name)
		if err := os.WriteFile(l.path("bin/"+name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) configure(o Options) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	l.port, l.URL = port, fmt.Sprintf("https://%s:%d/arex", siteName, port)
	var b strings.Builder
	fmt.Fprintf(&b, `[common]
hostname = %[2]s
x509_host_key = %[1]s/site.key
x509_host_cert = %[1]s/site.pem
x509_cert_dir = /etc/grid-security/certificates
x509_voms_dir = /etc/grid-security/vomsdir

[authgroup:atlas]
voms = atlas * * *

[authgroup:wlcg]
authtokens = * %[4]s * * *

[mapping]
map_to_user = atlas %[5]s
map_to_user = wlcg %[5]s
policy_on_nomap = stop

[authtokens]

[lrms]
lrms = slurm
slurm_bin_path = %[1]s/bin
slurm_wakeupperiod = 1
slurm_use_sacct = no

[arex]
controldir = %[1]s/control
sessiondir = %[6]s
runtimedir = %[1]s/runtime
logfile = %[1]s/log/arex.log
pidfile = %[1]s/run/arex.pid
joblog = %[1]s/log/jobs.log
tmpdir = %[1]s/tmp
wakeupperiod = 2
infoproviders_timelimit = 60
loglevel = INFO

[arex/ws]
wsurl = %[3]s
logfile = %[1]s/log/ws.log
loglevel = INFO
pidfile = %[1]s/run/ws.pid

[arex/ws/jobs]
allowaccess = atlas
allowaccess = wlcg

[infosys]
logfile = %[1]s/log/infoprovider.log
loglevel = INFO

[infosys/glue2]

[infosys/cluster]
`, l.dir, siteName, l.URL, l.issuer.url, o.User, o.Sessions)
	for name, options := range o.Queues {
		fmt.Fprintf(&b, "\n[queue:%s]\n", name)
		if options != "" {
			fmt.Fprintf(&b, "slurm_requirements = %s\n", options)
		}
	}
	return os.WriteFile(l.path("arc.conf"), []byte(b.String()+"\n"+o.Extra), 0o644)
}

// ProxyRuntime is the runtime environment of ARC with which a job has its proxy.
const ProxyRuntime = "ENV/PROXY"

// runtimes makes and enables runtime environments that give options to sbatch, and the one that gives proxies.
func (l *Lab) runtimes(ctx context.Context, options map[string]string) error {
	for name, option := range options {
		path := filepath.Join(l.path("runtime"), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path,
			[]byte(fmt.Sprintf("case $1 in\n0) joboption_nodeproperty_0=%q ;;\nesac\n", option)), 0o755); err != nil {
			return err
		}
		if err := l.arcctl(ctx, "enable", name); err != nil {
			return err
		}
	}
	return errors.Join(l.arcctl(ctx, "enable", ProxyRuntime),
		l.arcctl(ctx, "params-set", ProxyRuntime, "COPY_CACERT_DIR", "No"))
}

func (l *Lab) arcctl(ctx context.Context, words ...string) error {
	if out, err := l.run(ctx, nil, "/usr/sbin/arcctl", append([]string{"rte"}, words...)...); err != nil {
		return fmt.Errorf("arcctl: %w: %s", err, out)
	}
	return nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (l *Lab) awaitPort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			log, _ := os.ReadFile(l.path("log/ws.log"))
			return fmt.Errorf("the computing element does not listen on port %d: %s", l.port, log)
		}
	}
}

// SubmitLog is what came of submitting a job to the batch system.
func (l *Lab) SubmitLog(id string) string {
	text, _ := os.ReadFile(l.path("control/job." + filepath.Base(id) + ".errors"))
	return string(text)
}

// Close ends the computing element and everything it started.
func (l *Lab) Close() error {
	if l.issuer != nil {
		l.issuer.server.Close()
	}
	var errs []error
	for _, name := range []string{"run/ws.pid", "run/arex.pid"} {
		errs = append(errs, endDaemon(l.path(name)))
	}
	return errors.Join(errs...)
}

// endDaemon ends the process of a PID file, gently first.
func endDaemon(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 {
		return fmt.Errorf("%s holds %q", file, text)
	}
	for i, s := 0, syscall.SIGTERM; i < 100; i++ {
		if i == 50 {
			s = syscall.SIGKILL
		}
		if ended(pid) {
			return nil
		}
		syscall.Kill(pid, s)
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("process %d of %s does not end", pid, file)
}

// ended reports whether a process has gone, or only waits to be reaped by one that is slow to.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "Z")
}
