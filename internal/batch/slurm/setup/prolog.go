package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Checked is where the prolog notes what it has looked at.
const Checked = "/run/grange/slurm"

// Prolog is what runs as root on a host before a job.
type Prolog struct {
	Checked string
	MinUID  uint32 // users below it may run without the plug-in; never with --vm
	Conf    string // slurm.conf; slurmd says where it is, but older ones do not
	Slurmd  int    // the process that started the prolog
	Getenv  func(string) string
	Environ []string
	Run     program.Run
}

// Check lets a job pass if Slurm loads the plug-in for it. Slurm ignores options of plug-ins that it does not have:
// without this check a job that asked for a VM, or is due one on this host, would then run on the host itself. When it
// is refused, Slurm puts the job back into its queue and takes the host out of service; the reason is left with the
// host.
func (p Prolog) Check(ctx context.Context) error {
	job, uid, err := p.job()
	if err != nil {
		return err
	}
	if err = p.loads(); err == nil || uid < p.MinUID && !p.asked() {
		return nil
	}
	refused := &farm.Error{Kind: farm.Unavailable, Code: CodeNoPlugin,
		Message: "Slurm does not load grange's plug-in for job " + job + " on this host", Err: err,
		Hint: "grange slurm check says what is wrong; then: scontrol update nodename=" + p.Getenv("SLURMD_NODENAME") +
			" state=resume"}
	return errors.Join(refused, p.close(ctx, "Slurm does not load grange's plug-in, see grange slurm check"))
}

// ticks is more than what the times of files lag behind the clock, whole seconds included.
const ticks = 2 * time.Second

// loads reports whether a job's daemon, slurmstepd, loads the plug-in: what it reads names it as required, so that it
// ends the job where it can not. A note of that saves the next job the look.
func (p Prolog) loads() error {
	began := time.Now().Add(-ticks)
	path := p.Getenv("SLURM_CONF")
	if path == "" {
		path = p.Conf
	}
	conf, err := ReadConf(path)
	if err != nil {
		return err
	}
	if conf.Missing {
		return badConf(path, 0, "it, or a file that it includes, is not there")
	}
	s := Site{Slurm: conf}
	if err := s.readPlugstack(path); err != nil {
		return err
	}
	if f := checkPlugstack(s); f.Level == batch.Broken {
		return fmt.Errorf("%s: %s", f.Where, f.Found)
	}
	line, _ := Ours(s.Plugstack)
	if _, err := os.Stat(line.Path); err != nil {
		return err
	}
	if path == p.Conf && s.PlugstackPath == filepath.Join(filepath.Dir(path), "plugstack.conf") {
		p.note(began) // without it the next job looks again
	}
	return nil
}

// note leaves a file named after slurmd, as old as our look. The script compares it with the files that we have read:
// those of its own directory, so nothing is noted where slurmd reads others.
func (p Prolog) note(began time.Time) error {
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Slurmd)); err != nil || string(name) != "slurmd\n" {
		return err // a prolog of the site's started ours
	}
	if err := os.MkdirAll(p.Checked, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(p.Checked)
	if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != 0 || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not root's alone to write: %w", p.Checked, err)
	}
	dir, err := os.OpenRoot(p.Checked)
	if err != nil {
		return err
	}
	defer dir.Close()
	const prefix = "slurmd-"
	old, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range old { // of a slurmd that has ended
		pid, is := strings.CutPrefix(e.Name(), prefix)
		if _, err := os.Stat("/proc/" + pid); is && err != nil {
			dir.Remove(e.Name())
		}
	}
	fresh := fmt.Sprintf("new-%d", os.Getpid())
	f, err := dir.Create(fresh)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), dir.Chtimes(fresh, began, began), dir.Rename(fresh, prefix+strconv.Itoa(p.Slurmd)))
}

// job is what Slurm tells a prolog; nobody else's word is in these variables.
func (p Prolog) job() (id string, uid uint32, err error) {
	id = p.Getenv("SLURM_JOB_ID")
	user, err := strconv.ParseUint(p.Getenv("SLURM_JOB_UID"), 10, 32)
	if n, bad := strconv.ParseUint(id, 10, 32); err != nil || bad != nil || n == 0 {
		return "", 0, &farm.Error{Kind: farm.Invalid, Code: CodeBadSlurmConf,
			Message: "SLURM_JOB_ID and SLURM_JOB_UID are not set: this was not started by slurmd",
			Hint:    "Prolog in slurm.conf starts it"}
	}
	return id, uint32(user), nil
}

// asked reports whether the job carries one of our options: Slurm hands them on to prologs, also where it knows no
// plug-in for them.
func (p Prolog) asked() bool {
	for _, kv := range p.Environ {
		if strings.HasPrefix(kv, "SPANK__SLURM_SPANK_OPTION_grange_vm") {
			return true
		}
	}
	return false
}

// close takes the host out of service with a reason. Slurm does so by itself for a failed prolog, and says only that.
func (p Prolog) close(ctx context.Context, reason string) error {
	node := p.Getenv("SLURMD_NODENAME")
	if node == "" {
		return nil
	}
	path := p.Getenv("SLURM_CONF")
	if path == "" && filepath.Base(p.Conf) == "slurm.conf" {
		path = p.Conf
	}
	var env []string // an empty one would be a file's name to Slurm
	if path != "" {
		env = []string{"SLURM_CONF=" + path}
	}
	_, err := p.Run(ctx, program.Call{Path: "scontrol",
		Args: []string{"update", "nodename=" + node, "state=drain", "reason=" + batch.Reason(reason)}, Env: env,
		Limit: 10 * time.Second})
	if err != nil {
		return fmt.Errorf("close %s: %w", node, err)
	}
	return nil
}
