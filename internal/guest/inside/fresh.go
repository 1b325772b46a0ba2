package inside

import (
	"encoding/binary"
	"sync"
	"time"
)

// fresh remembers which files of a bound directory the kernel has just been told about. It believes that for a second.
// When another task of the job has ended, which a script may have waited for, what the script then looks at must be as
// the task left it: so the kernel is told to ask again.
type fresh struct {
	mu     sync.Mutex
	nodes  map[uint64]time.Time // by the number that kernel and server call a file
	asked  map[uint64]uint32    // opcode by number of the request, of those whose answers name files
	pruned time.Time
}

// believed is how long a kernel trusts an answer: the gateway's timeout, and a little more for the way.
const believed = 1500 * time.Millisecond

// Of <linux/fuse.h>: requests whose answers begin with a struct fuse_entry_out, or are made of struct fuse_direntplus.
const (
	opLookup, opSymlink, opMknod, opMkdir, opLink, opCreate, opReaddirPlus = 1, 6, 8, 9, 13, 35, 44

	requestHead, answerHead, entryOut, direntHead = 40, 16, 128, 24

	notifyInvalInode = 2
)

func newFresh() *fresh {
	return &fresh{nodes: map[uint64]time.Time{}, asked: map[uint64]uint32{}}
}

// request notes what the kernel asks about.
func (f *fresh) request(b []byte) {
	if len(b) < requestHead {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.nodes[binary.LittleEndian.Uint64(b[16:])] = now
	switch op := binary.LittleEndian.Uint32(b[4:]); op {
	case opLookup, opSymlink, opMknod, opMkdir, opLink, opCreate, opReaddirPlus:
		f.asked[binary.LittleEndian.Uint64(b[8:])] = op
	}
	if now.Sub(f.pruned) > believed {
		f.pruned = now
		for node, at := range f.nodes {
			if now.Sub(at) > believed {
				delete(f.nodes, node)
			}
		}
	}
}

// answer notes the files that an answer names.
func (f *fresh) answer(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unique := binary.LittleEndian.Uint64(b[8:])
	op, ok := f.asked[unique]
	if !ok {
		return
	}
	delete(f.asked, unique)
	now := time.Now()
	body := b[answerHead:]
	if op != opReaddirPlus {
		if len(body) >= 8 {
			f.nodes[binary.LittleEndian.Uint64(body)] = now
		}
		return
	}
	for len(body) >= entryOut+direntHead {
		if node := binary.LittleEndian.Uint64(body); node != 0 {
			f.nodes[node] = now
		}
		name := int(binary.LittleEndian.Uint32(body[entryOut+16:]))
		size := entryOut + (direntHead+name+7)&^7
		if name > 4096 || size > len(body) {
			return
		}
		body = body[size:]
	}
}

// doubts is what to tell the kernel so that it asks again for all of that: one message a file.
func (f *fresh) doubts() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var messages [][]byte
	for node, at := range f.nodes {
		if node == 0 || time.Since(at) > believed {
			continue
		}
		var b []byte
		b = binary.LittleEndian.AppendUint32(b, answerHead+24)
		b = binary.LittleEndian.AppendUint32(b, notifyInvalInode)
		b = binary.LittleEndian.AppendUint64(b, 0) // no request's answer
		b = binary.LittleEndian.AppendUint64(b, node)
		// no content: a changed time of change has that read anew, and we must not wait for pages
		b = binary.LittleEndian.AppendUint64(b, ^uint64(0))
		b = binary.LittleEndian.AppendUint64(b, 0)
		messages = append(messages, b)
	}
	clear(f.nodes)
	return messages
}
