package swarm

// Bits says which pieces somebody holds.
type Bits []byte

// NewBits returns n bits, none set.
func NewBits(n int) Bits { return make(Bits, (n+7)/8) }

// Has reports whether bit i is set. Bits beyond the end are not.
func (b Bits) Has(i int) bool { return i>>3 < len(b) && b[i>>3]&(1<<(i&7)) != 0 }

// Set sets bit i.
func (b Bits) Set(i int) { b[i>>3] |= 1 << (i & 7) }
