package farm

import "time"

// Move is one attempt to bring a VM to another host while it runs. The last one of each VM is kept as long as the VM.
type Move struct {
	ID           string
	VM, Project  string
	From, To     string // hosts, by ID
	FromName     string
	ToName       string
	Digest       string // of the VM's image, which the target must have
	By           string
	Since, Ended time.Time // Ended is zero while it is under way
	Cancelled    bool      // it is not wanted any more, and its source has not said yet what became of it
	Failure      string    // why the VM stays where it was; "": it does not, or that is not known yet
	Source       MoveSide  // as each side reported last
	Target       MoveSide
	Arrival      Observed // the VM at the target, as that reported last
}

// Active reports whether the move is under way.
func (m Move) Active() bool { return m.ID != "" && m.Ended.IsZero() }

// MoveSide is what one host reports of a move.
type MoveSide struct {
	ID          string
	Phase       string // as api/fleet has it
	Reason      string
	Host        string // the other one, by ID
	Address     string
	Total, Done Bytes
}
