package farm

// Codes of cloud VMs on their host.
const (
	CodeNoBridge    Code = "no-bridge"         // the host does not have the bridge of a VM's network
	CodeVMEnded     Code = "vm-ended"          // a VM ended, and nobody wanted it to
	CodeVMWontStart Code = "vm-wont-start"     // a VM that has run on its host does not start there any more
	CodeServersVM   Code = "belongs-to-server" // the host's own commands do not change it
)

// Codes of moves.
const (
	CodeMoveFailed    Code = "move-failed"    // a move has failed; its VM runs on where it was
	CodeNoMove        Code = "no-move"        // a VM is not moved, and was not
	CodeMoveCancelled Code = "move-cancelled" // a move was not wanted any more
)
