package apply

import "github.com/grange-project/grange/internal/farm"

// Codes of errors of changing how a host is set up; see docs/errors.md.
const (
	CodeBadChange     farm.Code = "bad-change"     // a rule asks for something that no host has
	CodeContradiction farm.Code = "contradiction"  // two rules want different things of one setting
	CodeNoHeadRoom    farm.Code = "no-head-room"   // the host would swap
	CodeFewPages      farm.Code = "few-pages"      // the kernel gave fewer huge pages than asked
	CodeNotTaken      farm.Code = "not-taken"      // a value that was written is not what is read back
	CodeStalePlan     farm.Code = "stale-plan"     // the host changed between plan and apply
	CodeApplyFailed   farm.Code = "apply-failed"   // and was undone
	CodeUndoFailed    farm.Code = "undo-failed"    // something could not be put back
	CodeTuningBusy    farm.Code = "tuning-busy"    // another apply or undo works now
	CodeDrifted       farm.Code = "drifted"        // somebody changed since what an apply had set
	CodeNoApply       farm.Code = "no-such-apply"  // nothing to undo
	CodeProgramFailed farm.Code = "program-failed" // systemctl, modprobe or the boot loader's program complained
	CodeUnsafePath    farm.Code = "unsafe-path"    // a link out of the tree, or no plain file
)
