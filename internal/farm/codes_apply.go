package farm

// Errors of changing how a host is set up.
const (
	CodeBadChange     Code = "bad-change"     // a rule asks for something that no host has
	CodeContradiction Code = "contradiction"  // two rules want different things of one setting
	CodeVMsRunning    Code = "vms-running"    // the change has to wait for the last VM
	CodeNoHeadRoom    Code = "no-head-room"   // the host would swap
	CodeFewPages      Code = "few-pages"      // the kernel gave fewer huge pages than asked
	CodeNotTaken      Code = "not-taken"      // a value that was written is not what is read back
	CodeStalePlan     Code = "stale-plan"     // the host changed between plan and apply
	CodeApplyFailed   Code = "apply-failed"   // and was undone
	CodeUndoFailed    Code = "undo-failed"    // something could not be put back
	CodeUnfinished    Code = "unfinished"     // an earlier apply was cut short
	CodeTuningBusy    Code = "tuning-busy"    // another apply or undo works now
	CodeDrifted       Code = "drifted"        // somebody changed since what an apply had set
	CodeNoApply       Code = "no-such-apply"  // nothing to undo
	CodeNeedsRoot     Code = "needs-root"     // only root may change a host
	CodeNeedsYes      Code = "needs-yes"      // nobody there to ask
	CodeBadJournal    Code = "bad-journal"    // the record of an apply cannot be read
	CodeProgramFailed Code = "program-failed" // systemctl, modprobe or the boot loader's program complained
	CodeUnsafePath    Code = "unsafe-path"    // a link out of the tree, or no plain file
)
