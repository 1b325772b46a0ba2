package inside

import (
	"encoding/binary"
	"slices"
	"testing"
)

func fuseRequest(op uint32, unique, node uint64) []byte {
	b := make([]byte, requestHead)
	binary.LittleEndian.PutUint32(b[4:], op)
	binary.LittleEndian.PutUint64(b[8:], unique)
	binary.LittleEndian.PutUint64(b[16:], node)
	return b
}

func fuseAnswer(unique uint64, body []byte) []byte {
	b := make([]byte, answerHead, answerHead+len(body))
	binary.LittleEndian.PutUint64(b[8:], unique)
	return append(b, body...)
}

func direntPlus(node uint64, name string) []byte {
	b := make([]byte, entryOut+(direntHead+len(name)+7)&^7)
	binary.LittleEndian.PutUint64(b, node)
	binary.LittleEndian.PutUint32(b[entryOut+16:], uint32(len(name)))
	copy(b[entryOut+direntHead:], name)
	return b
}

func doubted(f *fresh) []uint64 {
	var nodes []uint64
	for _, m := range f.doubts() {
		nodes = append(nodes, binary.LittleEndian.Uint64(m[16:]))
	}
	slices.Sort(nodes)
	return nodes
}

func TestFreshKnowsWhatTheKernelWasTold(t *testing.T) {
	f := newFresh()
	entry := make([]byte, entryOut)
	binary.LittleEndian.PutUint64(entry, 7)
	f.request(fuseRequest(opLookup, 1, 1))
	f.answer(fuseAnswer(1, entry))
	f.request(fuseRequest(3, 2, 9)) // getattr
	f.answer(fuseAnswer(2, make([]byte, 104)))
	f.request(fuseRequest(opReaddirPlus, 3, 1))
	f.answer(fuseAnswer(3, slices.Concat(direntPlus(0, "."), direntPlus(11, "a"),
		direntPlus(12, "a name of some length"))))
	f.answer(fuseAnswer(99, entry)) // to nothing that was asked
	if got, want := doubted(f), []uint64{1, 7, 9, 11, 12}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := doubted(f); got != nil {
		t.Errorf("told twice: %v", got)
	}
}

func FuzzFresh(f *testing.F) {
	f.Add(direntPlus(11, "a"), uint32(opReaddirPlus))
	f.Add([]byte{1, 2, 3}, uint32(opLookup))
	f.Fuzz(func(t *testing.T, body []byte, op uint32) {
		x := newFresh()
		x.request(fuseRequest(op, 1, 1))
		x.answer(fuseAnswer(1, body))
		x.doubts()
	})
}
