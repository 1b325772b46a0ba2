package ledger

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// sight is what somebody may know of claims: all, or those of one user and of one batch job.
type sight struct {
	all bool
	uid uint32
	key string // farm.Allotment.Key; "": of no job
}

// sightOf returns what the owner of a VM may know.
func (b *claims) sightOf(id string) sight {
	if b.cloud[id] {
		return b.sightOfServer(b.keys[id])
	}
	return b.sightFor(b.charges[id].Owner, b.keys[id])
}

// sightFor returns what a user in a batch job may know: root everything, and others too unless VMs are private.
func (b *claims) sightFor(uid uint32, key string) sight {
	return sight{all: uid == 0 || !b.private(), uid: uid, key: key}
}

// sightOfServer returns what the server may pass on to the users of its VMs.
func (b *claims) sightOfServer(key string) sight { return sight{all: !b.private(), key: key} }

// visible reports whether the claim of a VM may be named. Cloud VMs are the server's, and no user's.
func (b *claims) visible(by sight, id string) bool {
	return by.all || by.key != "" && b.keys[id] == by.key ||
		by.uid != 0 && b.charges[id].Owner == by.uid && !b.cloud[id]
}

// others are the claims that may not be named.
type others struct {
	cpus   farm.CPUSet
	memory farm.Bytes
	any    bool
}

func (o *others) add(p farm.Plan) {
	o.cpus, o.memory, o.any = o.cpus.Or(p.Held()), o.memory+p.Memory(), true
}

func (o others) String() string { return fmt.Sprintf("others hold CPUs %v and %v", o.cpus, o.memory) }

// nameOr returns a name that may be known, or else a word for it.
func nameOr(visible bool, name string) string {
	if visible {
		return name
	}
	return "another's"
}
