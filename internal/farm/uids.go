package farm

import (
	"fmt"
	"strconv"
	"strings"
)

// UIDs are the user IDs that a host keeps for its VMs, from First to Last: each QEMU runs as one of its own. The zero
// value has none.
type UIDs struct{ First, Last uint32 }

// ParseUIDs reads "FIRST-LAST", or "none".
func ParseUIDs(text string) (UIDs, error) {
	if text == "none" {
		return UIDs{}, nil
	}
	// the last two are -1 of 32 and of 16 bits, which chown and old programs take for "none"
	const system, invalid, short = 1000, 1<<32 - 1, 1<<16 - 1
	first, last, ok := strings.Cut(text, "-")
	from, err1 := strconv.ParseUint(first, 10, 32)
	to, err2 := strconv.ParseUint(last, 10, 32)
	switch {
	case !ok || err1 != nil || err2 != nil || from > to:
		return UIDs{}, fmt.Errorf("%q is neither FIRST-LAST nor none", text)
	case from < system:
		return UIDs{}, fmt.Errorf("%q: IDs below %d are the system's own", text, system)
	case to == invalid || from <= short && to >= short-1:
		return UIDs{}, fmt.Errorf("%q: 65534, 65535 and 4294967295 are nobody's", text)
	}
	return UIDs{uint32(from), uint32(to)}, nil
}

// None reports whether there are none.
func (u UIDs) None() bool { return u.Last == 0 }

// Has reports whether a user ID is one of them.
func (u UIDs) Has(uid uint32) bool { return !u.None() && uid >= u.First && uid <= u.Last }

// Overlaps reports whether any of them is between first and last.
func (u UIDs) Overlaps(first, last uint64) bool {
	return !u.None() && uint64(u.First) <= last && first <= uint64(u.Last)
}

// Free returns one that is not used; false where all are. The search begins at an offset from the first, so that who
// offers random ones gives an ID to a second VM as late as can be.
func (u UIDs) Free(offset uint32, used func(uint32) bool) (uint32, bool) {
	if u.None() {
		return 0, false
	}
	n := u.Last - u.First + 1
	for i := range n {
		if uid := u.First + (offset%n+i)%n; !used(uid) {
			return uid, true
		}
	}
	return 0, false
}

func (u UIDs) String() string {
	if u.None() {
		return "none"
	}
	return fmt.Sprintf("%d-%d", u.First, u.Last)
}
