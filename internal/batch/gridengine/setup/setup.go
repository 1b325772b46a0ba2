package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/farm"
)

// Links are names under which the grange program does what Grid Engine can name without arguments only. A script in
// their place would be run by a shell that loads what the job's LD_PRELOAD says, on the host.
const (
	StarterLink  = "grange-exec-gridengine"
	SensorLink   = "grange-gridengine-load-sensor"
	ShepherdLink = "grange-gridengine-shepherd"
)

// Complexes that the load sensor reports, as qconf -sc shows them.
var complexes = map[string]string{
	"vmslots":  "vmslots vmslots INT <= YES NO 0 0",
	"vmimages": "vmimages vmimages RESTRING == YES NO NONE 0",
}

// Setup is what a queue needs whose jobs run in VMs.
type Setup struct {
	Queue    string
	Host     string // the execution host whose load sensor is set; "": none
	Links    string // directory of the links
	Program  string // the grange program that they lead to
	Shepherd bool   // jobs with little h_vmem: see Shepherd
	Logins   bool   // leave qlogin and qrsh without a command as they are, which run on the host
}

// attributes are the queue's, in the order in which they are set: a queue must never start jobs that it cannot end.
func (s Setup) attributes() [][2]string {
	return [][2]string{
		// Not SIGTSTP: Grid Engine sends signals to QEMU too, which would stop and hear nothing of its own pause.
		{"suspend_method", s.Program + " gridengine suspend $job_pid"},
		{"resume_method", s.Program + " gridengine resume $job_pid"},
		{"terminate_method", s.Program + " gridengine terminate $job_pid"},
		{"rerun", "TRUE"}, // else a job whose VM was not started is not queued again
		{"qtype", "BATCH"},
		{"starter_method", filepath.Join(s.Links, StarterLink)},
	}
}

// host are the settings of the host's own configuration.
func (s Setup) host() [][2]string {
	out := [][2]string{{"load_sensor", filepath.Join(s.Links, SensorLink)}}
	if s.Shepherd {
		out = append(out, [2]string{"shepherd_cmd", filepath.Join(s.Links, ShepherdLink)})
	}
	if !s.Logins {
		out = append(out, [2]string{"qlogin_daemon", noLogins}, [2]string{"rlogin_daemon", noLogins})
	}
	return out
}

// noLogins is what qlogin and qrsh without a command start on a host: they pass by the starter method.
const noLogins = "/bin/false"

// Change is one thing that Install does.
type Change struct {
	What string // as a person would say it
	do   func(ctx context.Context) error
}

// Plan is what has to be changed. Nothing: all is as it should be.
func Plan(ctx context.Context, c *gridengine.Cell, s Setup) ([]Change, error) {
	var plan []Change
	add := func(do func(context.Context) error, format string, args ...any) {
		plan = append(plan, Change{fmt.Sprintf(format, args...), do})
	}
	for _, name := range []string{StarterLink, SensorLink, ShepherdLink} {
		link := filepath.Join(s.Links, name)
		if to, err := os.Readlink(link); err != nil || to != s.Program {
			add(func(context.Context) error { return makeLink(s.Program, link) }, "link %s to %s", link, s.Program)
		}
	}
	text, err := c.Qconf(ctx, "-sc")
	if err != nil {
		return nil, err
	}
	var missing []string
	for name, line := range complexes {
		if !slices.Contains(firstWords(text), name) {
			missing = append(missing, line)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		all := strings.TrimRight(text, "\n") + "\n" + strings.Join(missing, "\n") + "\n"
		add(func(ctx context.Context) error {
			return c.QconfFile(ctx, "complexes", all, "-Mc")
		}, "add complexes: %s", strings.Join(missing, "; "))
	}
	if s.Host != "" {
		if plan, err = planHost(ctx, c, s, plan); err != nil {
			return nil, err
		}
	}
	text, err = c.Qconf(ctx, "-sq", s.Queue)
	if err != nil {
		return nil, err
	}
	queue := gridengine.ParseSettings(text)
	for _, a := range s.attributes() {
		if queue.Values[a[0]] != a[1] {
			add(func(ctx context.Context) error {
				_, err := c.Qconf(ctx, "-mattr", "queue", a[0], a[1], s.Queue)
				return err
			},
				"queue %s: %s %s (was %s)", s.Queue, a[0], a[1], queue.Values[a[0]])
		}
	}
	return plan, nil
}

// planHost adds what the host's own configuration lacks. Most hosts have none: then the cell's counts.
func planHost(ctx context.Context, c *gridengine.Cell, s Setup, plan []Change) ([]Change, error) {
	option := "-Mconf"
	text, err := c.Qconf(ctx, "-sconf", s.Host)
	if farm.IsCode(err, farm.CodeQconf) {
		option, text = "-Aconf", ""
	} else if err != nil {
		return nil, err
	}
	conf := gridengine.ParseSettings(text)
	var words []string
	for _, a := range s.host() {
		value := a[1]
		if old := conf.Values[a[0]]; a[0] == "load_sensor" && !gridengine.None(old) &&
			!slices.Contains(strings.Split(old, ","), value) {
			value = old + "," + value // the site's own stay
		} else if a[0] == "load_sensor" && !gridengine.None(old) {
			value = old
		}
		if conf.Values[a[0]] != value {
			words = append(words, a[0]+" "+value)
			conf.Set(a[0], value)
		}
	}
	if len(words) == 0 {
		return plan, nil
	}
	return append(plan, Change{"host " + s.Host + ": " + strings.Join(words, ", "), func(ctx context.Context) error {
		if err := c.QconfFile(ctx, s.Host, conf.String(), option); err != nil || option == "-Mconf" {
			return err
		}
		// sge_execd reads its configuration when the version of one differs from what it knows; that of a new one may
		// be the same. That of the cell's always differs after it was written, whatever it holds.
		global, err := c.Qconf(ctx, "-sconf")
		if err != nil {
			return err
		}
		return c.QconfFile(ctx, "global", global, "-Mconf")
	}}), nil
}

// Install makes the changes, telling of each when it is made.
func Install(ctx context.Context, plan []Change, done func(string)) error {
	for _, change := range plan {
		if err := change.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", change.What, err)
		}
		done(change.What)
	}
	return nil
}

func makeLink(program, link string) error {
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(program, link)
}

func firstWords(text string) []string {
	var words []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			words = append(words, f[0])
		}
	}
	return words
}
