package app

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Exit statuses of our own. Those of jobs pass through `grange exec` as they are. What a check found has statuses other
// than ExitFailed and ExitUsage, so that a script can tell it from a check that did not happen.
const (
	ExitFailed = 1
	ExitUsage  = 2

	ExitAdvice  = 3
	ExitWarning = 4
	ExitFault   = 5

	ExitDiffers   = 3
	ExitDrift     = 4
	ExitUnlike    = 4
	ExitBad       = 4
	ExitMisplaced = 4
	ExitLost      = 4
	ExitCrowded   = 5

	ExitSlow  = 1
	ExitFails = 3

	ExitInterrupted = 130 // as of a program that INT ended
)

// ExitStatuses is the table of the reference, by status.
var ExitStatuses = []struct {
	Status         int
	Where, Meaning string
}{
	{0, "every command", "success; for a check: no findings"},
	{ExitFailed, "every command", "failure; standard error gives the reason, with a code explained in docs/errors.md"},
	{ExitFailed, "`slurm`, `gridengine`, `htcondor`, `pbs`, `lsf check`", "something is broken: jobs do not start, " +
		"or could run outside of a VM"},
	{ExitSlow, "`batch check`", "the master will be slow"},
	{ExitFailed, "`host fit`", "the VMs do not fit"},
	{ExitUsage, "every command", "the command line is invalid"},
	{ExitAdvice, "`tune audit`", "the worst finding is advice"},
	{ExitDiffers, "`diff --exit-code`", "there are changes"},
	{ExitFails, "`batch check`", "the master will refuse nodes or jobs"},
	{ExitWarning, "`tune audit`", "the worst finding is a warning"},
	{ExitDrift, "`tune drift`", "a setting differs from what was applied"},
	{ExitUnlike, "`host compare`", "VMs with a CPU model of the host could not move"},
	{ExitBad, "`selftest`, `network check`", "a verdict is bad"},
	{ExitLost, "`bench gate`", "VMs are slower than the baseline says, beyond the noise"},
	{ExitMisplaced, "`tune verify`", "a VM does not run where it was planned"},
	{ExitFault, "`tune audit`", "the worst finding is a fault"},
	{ExitCrowded, "`tune verify`", "VMs share CPUs while others idle, or are pinned to CPUs that do not exist"},
	{ExitInterrupted, "`selftest`", "interrupted"},
	{batch.ExitNever, "`exec --batch`, job wrappers", "no VM was started, the job did not run, and a retry would not help"},
	{batch.ExitVMLost, "`exec`", "the VM ended while the command ran; it may have run in part"},
	{batch.ExitNotStarted, "`exec`", "no VM was started and the command did not run: a batch system may retry"},
	{128, "`exec`", "128 and the number of the signal that ended the command"},
}

// ExitError carries an exit status through cobra. Its message was printed, or there is none.
type ExitError struct{ Status int }

func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// StatusOf is the one table from errors to exit statuses, for commands other than exec.
func StatusOf(err error) int {
	if own := new(farm.Error); errors.As(err, &own) && own.Code == farm.CodeUsage {
		return ExitUsage
	}
	return ExitFailed
}

// DeathError carries the signal that the process is to die of through cobra.
type DeathError struct{ Signal syscall.Signal }

func (e DeathError) Error() string { return "death by " + e.Signal.String() }
