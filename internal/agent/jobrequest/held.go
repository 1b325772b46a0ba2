package jobrequest

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// Of requests that wait, as many bytes may be in the agent's memory: of one user a few of the largest scripts, or
// thousands of usual ones, and of all users a few times that. A user with little is served beside that. A job whose
// guest has its request takes none.
const (
	mostOfUser  = 256 << 20
	mostOfAll   = 1 << 30
	alwaysTaken = 16 << 20
)

// Held is what a user has in an agent with one more job.
type Held struct {
	Jobs, MostJobs int   // without the new one
	Bytes          int64 // of requests that wait, with the new one
	All            int64 // of all users but root
}

// Check refuses a job with which a user, or all users, have too much.
func (h Held) Check() error {
	const hint = "wait until some have begun; or put large scripts into a directory that is bound, which sends none"
	switch {
	case h.Bytes > mostOfUser && h.Jobs > 0:
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeTooManyBytes, Hint: hint,
			Message: fmt.Sprintf("your waiting jobs on this host have scripts and environments of %v with this one; "+
				"%v are kept for one user", farm.Bytes(h.Bytes), farm.Bytes(mostOfUser))}
	case h.All > mostOfAll && h.Bytes > alwaysTaken:
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeTooManyBytes, Hint: hint,
			Message: fmt.Sprintf("the waiting jobs of all users on this host have scripts and environments of %v with "+
				"this one; %v are kept, and beside them %v for each user", farm.Bytes(h.All), farm.Bytes(mostOfAll),
				farm.Bytes(alwaysTaken))}
	case h.Jobs >= h.MostJobs:
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeTooManyJobs,
			Message: fmt.Sprintf("you have %d jobs on this host already, those that wait included", h.Jobs),
			Hint:    "wait until some have ended"}
	}
	return nil
}
