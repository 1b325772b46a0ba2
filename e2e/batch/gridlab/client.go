package gridlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Proxy makes a VOMS proxy of the lab's user, as voms-proxy-init would with a VOMS server's answer.
func (l *Lab) Proxy(ctx context.Context, fqans ...string) (path string, err error) {
	path = l.path("proxy")
	args := []string{"-quiet", "-cert", l.path("user.pem"), "-key", l.path("user.key"), "-certdir",
		"/etc/grid-security/certificates", "-hostcert", l.path("voms.pem"), "-hostkey", l.path("voms.key"), "-voms",
		"atlas", "-uri", vomsName + ":15001", "-rfc", "-bits", "2048", "-hours", "12", "-vomslife", "12", "-out", path}
	for _, f := range fqans {
		args = append(args, "-fqan", f)
	}
	if out, err := l.run(ctx, nil, "/usr/bin/voms-proxy-fake", args...); err != nil {
		return "", fmt.Errorf("voms-proxy-fake: %w: %s", err, out)
	}
	return path, nil
}

// Token is a token of the lab's issuer that lets its holder run jobs here.
func (l *Lab) Token() (string, error) {
	return l.issuer.token("ada", fmt.Sprintf("https://%s:%d", siteName, l.port))
}

func (l *Lab) client(ctx context.Context, proxy, name string, args ...string) (string, error) {
	return l.run(ctx, []string{"X509_CERT_DIR=/etc/grid-security/certificates", "X509_USER_PROXY=" + proxy},
		"/usr/bin/"+name, args...)
}

// Outcome is what came back to the one who submitted.
type Outcome struct {
	ID, State string
	Code      string
	Stdout    string
	Stderr    string
	Status    string // all that arcstat said
}

var (
	jobID    = regexp.MustCompile(`(?m)jobid: (\S+)`)
	state    = regexp.MustCompile(`(?m)^ *State: (.+?)(?: \(.*\))?$`)
	exitCode = regexp.MustCompile(`(?m)^ *Exit Code: (\d+)`)
)

// RunProxy submits a script with a proxy, waits for its end and fetches what it wrote.
func (l *Lab) RunProxy(ctx context.Context, proxy string, j Job) (Outcome, error) {
	dir, err := os.MkdirTemp(l.path("home"), "job")
	if err != nil {
		return Outcome{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte(j.Script), 0o755); err != nil {
		return Outcome{}, err
	}
	text := j.description(filepath.Join(dir, "job.sh"))
	if err := os.WriteFile(filepath.Join(dir, "job.xrsl"), []byte(text), 0o644); err != nil {
		return Outcome{}, err
	}
	list := filepath.Join(dir, "jobs.dat")
	out, err := l.client(ctx, proxy, "arcsub", "--joblist", list, "--submission-endpoint-type", "arcrest",
		"--computing-element", l.URL, "--info-endpoint-type", "NONE", filepath.Join(dir, "job.xrsl"))
	if err != nil {
		return Outcome{}, fmt.Errorf("arcsub: %w: %s", err, out)
	}
	m := jobID.FindStringSubmatch(out)
	if m == nil {
		return Outcome{}, fmt.Errorf("arcsub: %s", out)
	}
	o := Outcome{ID: m[1]}
	if err := l.await(ctx, proxy, list, &o); err != nil {
		return o, err
	}
	out, err = l.client(ctx, proxy, "arcget", "--joblist", list, "--dir", dir, o.ID)
	if err != nil {
		return o, fmt.Errorf("arcget: %w: %s", err, out)
	}
	for name, to := range map[string]*string{"out.txt": &o.Stdout, "err.txt": &o.Stderr} {
		found, _ := filepath.Glob(filepath.Join(dir, "*", name))
		if len(found) != 1 {
			return o, fmt.Errorf("arcget brought no %s: %s", name, out)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			return o, err
		}
		*to = string(text)
	}
	return o, nil
}

// await asks until the job has ended.
func (l *Lab) await(ctx context.Context, proxy string, list string, o *Outcome) error {
	for {
		if err := l.publish(ctx); err != nil {
			return err
		}
		out, err := l.client(ctx, proxy, "arcstat", "--joblist", list, "--long", o.ID)
		if err != nil {
			return fmt.Errorf("arcstat: %w: %s", err, out)
		}
		o.Status = out
		if m := state.FindStringSubmatch(out); m != nil {
			o.State = m[1]
		}
		if m := exitCode.FindStringSubmatch(out); m != nil {
			o.Code = m[1]
		}
		switch o.State {
		case "Finished", "Failed", "Killed", "Deleted":
			return nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("the job is %q: %s", o.State, out))
		}
	}
}

// publish refreshes what the computing element tells of its jobs, as it does itself once a minute.
func (l *Lab) publish(ctx context.Context) error {
	if out, err := l.run(ctx, nil, "/usr/share/arc/CEinfo.pl", "--splitjobs", "--config",
		l.path("run/arex.cfg")); err != nil {
		return fmt.Errorf("information provider: %w: %s", err, out)
	}
	return nil
}
