package slurm

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
	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/farm"
)

// Attest is where the plug-in leaves word, in Slurm's own process and as root, that it was loaded for a job.
const Attest = "/run/grange/slurm"

// Hooks are what runs as root on a host before and after a job.
type Hooks struct {
	Attest  string
	MinUID  uint32 // users below it may run without the plug-in; never with --vm
	Getenv  func(string) string
	Environ []string
	Run     program.Run
}

// Prolog lets a job pass if the plug-in was loaded for it. Slurm ignores options of plug-ins that it does not have, or cannot load: without
// this check a job that asked for a VM, or is due one on this host, would then run on the host itself. When it is refused, Slurm puts the
// job back into its queue and takes the host out of service; the reason is left with the host.
func (h Hooks) Prolog(ctx context.Context) error {
	job, uid, err := h.job()
	if err != nil {
		return err
	}
	path := filepath.Join(h.Attest, job)
	info, err := os.Lstat(path)
	// It is good for one start: left behind, it would speak for the next one too.
	gone := os.Remove(path)
	switch {
	case err == nil && gone == nil && info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Uid == 0:
		return nil
	case uid < h.MinUID && !h.asked():
		return nil
	}
	refused := &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNotAttested, Message: "Slurm did not load grange's plug-in for job " + job + " on this host", Err: notMissing(err),
		Hint: "grange slurm check says what is wrong; then: scontrol update nodename=" + h.Getenv("SLURMD_NODENAME") + " state=resume"}
	return errors.Join(refused, h.close(ctx, "Slurm did not load grange's plug-in, see grange slurm check"))
}

// Epilog removes what the plug-in left for a job that Slurm never started.
func (h Hooks) Epilog(context.Context) error {
	job, _, err := h.job()
	if err != nil {
		return err
	}
	return notMissing(os.Remove(filepath.Join(h.Attest, job)))
}

func notMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// job is what Slurm tells a prolog; nobody else's word is in these variables.
func (h Hooks) job() (id string, uid uint32, err error) {
	id = h.Getenv("SLURM_JOB_ID")
	user, err := strconv.ParseUint(h.Getenv("SLURM_JOB_UID"), 10, 32)
	if n, bad := strconv.ParseUint(id, 10, 32); err != nil || bad != nil || n == 0 {
		return "", 0, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadSlurmConf, Message: "SLURM_JOB_ID and SLURM_JOB_UID are not set: this was not started by slurmd",
			Hint: "Prolog and Epilog in slurm.conf start it"}
	}
	return id, uint32(user), nil
}

// asked tells whether the job carries one of our options: Slurm hands them on to prologs, also where it knows no plug-in for them.
func (h Hooks) asked() bool {
	for _, kv := range h.Environ {
		if strings.HasPrefix(kv, "SPANK__SLURM_SPANK_OPTION_grange_vm") {
			return true
		}
	}
	return false
}

// close takes the host out of service with a reason. Slurm does so by itself for a failed prolog, and says only that.
func (h Hooks) close(ctx context.Context, reason string) error {
	node := h.Getenv("SLURMD_NODENAME")
	if node == "" {
		return nil
	}
	_, err := h.Run(ctx, program.Call{Path: "scontrol", Args: []string{"update", "nodename=" + node, "state=drain", "reason=" + batch.Reason(reason)},
		Env: []string{"SLURM_CONF=" + h.Getenv("SLURM_CONF")}, Limit: 10 * time.Second})
	if err != nil {
		return fmt.Errorf("close %s: %w", node, err)
	}
	return nil
}
