package cli

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Exit statuses of our own. Those of jobs pass through `grange exec` as they are. What a check found has statuses other
// than exitFailed and exitUsage, so that a script can tell it from a check that did not happen.
const (
	exitFailed = 1
	exitUsage  = 2

	exitAdvice  = 3
	exitWarning = 4
	exitFault   = 5

	exitDiffers   = 3
	exitDrift     = 4
	exitUnlike    = 4
	exitBad       = 4
	exitMisplaced = 4
	exitCrowded   = 5

	exitSlow  = 1
	exitFails = 3

	exitInterrupted = 130 // as of a program that INT ended
)

// exitStatuses is the table of the reference, by status.
var exitStatuses = []struct {
	status         int
	where, meaning string
}{
	{0, "every command", "success; for a check: no findings"},
	{exitFailed, "every command", "failure; standard error gives the reason, with a code explained in docs/errors.md"},
	{exitFailed, "`slurm`, `gridengine`, `htcondor`, `pbs`, `lsf check`", "something is broken: jobs do not start, " +
		"or could run outside of a VM"},
	{exitSlow, "`batch check`", "the master will be slow"},
	{exitFailed, "`host fit`", "the VMs do not fit"},
	{exitUsage, "every command", "the command line is invalid"},
	{exitAdvice, "`tune audit`", "the worst finding is advice"},
	{exitDiffers, "`diff --exit-code`", "there are changes"},
	{exitFails, "`batch check`", "the master will refuse nodes or jobs"},
	{exitWarning, "`tune audit`", "the worst finding is a warning"},
	{exitDrift, "`tune drift`", "a setting differs from what was applied"},
	{exitUnlike, "`host compare`", "VMs with a CPU model of the host could not move"},
	{exitBad, "`selftest`", "a verdict is bad"},
	{exitMisplaced, "`tune verify`", "a VM does not run where it was planned"},
	{exitFault, "`tune audit`", "the worst finding is a fault"},
	{exitCrowded, "`tune verify`", "VMs share CPUs while others idle, or are pinned to CPUs that do not exist"},
	{exitInterrupted, "`selftest`", "interrupted"},
	{batch.ExitNever, "`exec --batch`, job wrappers", "no VM was started, the job did not run, and a retry would not help"},
	{batch.ExitVMLost, "`exec`", "the VM ended while the command ran; it may have run in part"},
	{batch.ExitNotStarted, "`exec`", "no VM was started and the command did not run: a batch system may retry"},
	{128, "`exec`", "128 and the number of the signal that ended the command"},
}

// exitError carries an exit status through cobra. Its message was printed, or there is none.
type exitError struct{ status int }

// statusOf is the one table from errors to exit statuses, for commands other than exec.
func statusOf(err error) int {
	if own := new(farm.Error); errors.As(err, &own) && own.Code == farm.CodeUsage {
		return exitUsage
	}
	return exitFailed
}

// deathError carries the signal that the process is to die of through cobra.
type deathError struct{ signal syscall.Signal }

func (e deathError) Error() string { return "death by " + e.signal.String() }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }
