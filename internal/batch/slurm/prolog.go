package slurm

import (
	"bytes"
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
	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/farm"
)

// Attest is where the plug-in leaves word, in slurmd and as root, that slurmd loads it.
const Attest = "/run/grange/slurm"

// Prolog is what runs as root on a host before a job.
type Prolog struct {
	Attest  string
	MinUID  uint32 // users below it may run without the plug-in; never with --vm
	Conf    string // slurm.conf
	PID     int    // of this process
	Getenv  func(string) string
	Environ []string
	Run     program.Run
}

// Check lets a job pass if Slurm loads the plug-in for it. Slurm ignores options of plug-ins that it does not have: without this check a job
// that asked for a VM, or is due one on this host, would then run on the host itself. When it is refused, Slurm puts the job back into its
// queue and takes the host out of service; the reason is left with the host.
func (p Prolog) Check(ctx context.Context) error {
	job, uid, err := p.job()
	if err != nil {
		return err
	}
	if err = p.loads(); err == nil || uid < p.MinUID && !p.asked() {
		return nil
	}
	refused := &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNotAttested, Message: "Slurm does not load grange's plug-in for job " + job + " on this host", Err: err,
		Hint: "grange slurm check says what is wrong; then: scontrol update nodename=" + p.Getenv("SLURMD_NODENAME") + " state=resume"}
	return errors.Join(refused, p.close(ctx, "Slurm does not load grange's plug-in, see grange slurm check"))
}

// ticks is more than what the times of files lag behind the clock.
const ticks = 100 * time.Millisecond

// loads tells whether Slurm loads the plug-in now: slurmd did when it started, by the plug-in's own word, and what the processes of a job read
// names it as required. The word gets a new time, so that the next job need not come here: as old as what has been read.
func (p Prolog) loads() error {
	word, err := p.word()
	if err != nil {
		return err
	}
	began := time.Now().Add(-ticks)
	conf, err := ReadConf(p.Conf)
	if err != nil {
		return err
	}
	s := Site{Slurm: conf}
	if err := s.readPlugstack(p.Conf); err != nil {
		return err
	}
	if f := checkPlugstack(s); f.Level == Broken {
		return fmt.Errorf("%s: %s", f.Where, f.Found)
	}
	line, _ := Ours(s.Plugstack)
	if _, err := os.Stat(line.Path); err != nil {
		return err
	}
	return os.Chtimes(word, began, began)
}

// word is the file that the slurmd above us left when it loaded the plug-in. A prolog of the site's may stand between.
func (p Prolog) word() (string, error) {
	dir, err := os.Lstat(p.Attest)
	switch {
	case err != nil:
		return "", err
	case !dir.IsDir() || !roots(dir) || dir.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("%s is not root's alone to write", p.Attest)
	}
	for pid := p.PID; pid > 1; {
		path := filepath.Join(p.Attest, "slurmd-"+strconv.Itoa(pid))
		if word, err := os.Lstat(path); err == nil && word.Mode().IsRegular() && roots(word) {
			return path, nil
		}
		if pid, err = parent(pid); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("no slurmd above this process has left word in %s", p.Attest)
}

func roots(info fs.FileInfo) bool { return info.Sys().(*syscall.Stat_t).Uid == 0 }

func parent(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the program's name may hold blanks and brackets
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	return strconv.Atoi(string(fields[1]))
}

// job is what Slurm tells a prolog; nobody else's word is in these variables.
func (p Prolog) job() (id string, uid uint32, err error) {
	id = p.Getenv("SLURM_JOB_ID")
	user, err := strconv.ParseUint(p.Getenv("SLURM_JOB_UID"), 10, 32)
	if n, bad := strconv.ParseUint(id, 10, 32); err != nil || bad != nil || n == 0 {
		return "", 0, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadSlurmConf, Message: "SLURM_JOB_ID and SLURM_JOB_UID are not set: this was not started by slurmd",
			Hint: "Prolog in slurm.conf starts it"}
	}
	return id, uint32(user), nil
}

// asked tells whether the job carries one of our options: Slurm hands them on to prologs, also where it knows no plug-in for them.
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
	_, err := p.Run(ctx, program.Call{Path: "scontrol", Args: []string{"update", "nodename=" + node, "state=drain", "reason=" + batch.Reason(reason)},
		Env: []string{"SLURM_CONF=" + p.Getenv("SLURM_CONF")}, Limit: 10 * time.Second})
	if err != nil {
		return fmt.Errorf("close %s: %w", node, err)
	}
	return nil
}
