package farm

import (
	"net/netip"
	"strconv"
	"strings"
)

// AddressPool is a range of IPv4 addresses in one network.
type AddressPool struct {
	First, Last netip.Addr
	Bits        int // of the network's prefix
}

// MaxAddresses bounds a pool. A network of the fleet may have several.
const MaxAddresses = 1 << 16

// ParseAddressPool reads "10.0.0.20-10.0.0.80/24". The error is a *Error of kind Invalid.
func ParseAddressPool(text string) (AddressPool, error) {
	bad := &Error{Kind: Invalid, Code: CodeBadAddress, Message: "addresses " + `"` + text + `"`,
		Hint: "write FIRST-LAST/BITS, as 10.0.0.20-10.0.0.80/24"}
	first, rest, ok := strings.Cut(text, "-")
	if !ok {
		return AddressPool{}, bad
	}
	last, err := netip.ParsePrefix(rest)
	if err != nil {
		return AddressPool{}, bad
	}
	p := AddressPool{Last: last.Addr(), Bits: last.Bits()}
	if p.First, err = netip.ParseAddr(first); err != nil || !p.First.Is4() || !p.Last.Is4() {
		return AddressPool{}, bad
	}
	switch {
	case !last.Contains(p.First):
		bad.Message += ": both ends must be in one network"
	case p.Last.Less(p.First):
		bad.Message += ": the first comes behind the last"
	case number(p.Last)-number(p.First) >= MaxAddresses:
		bad.Message += ": more than 65,536 addresses"
	default:
		return p, nil
	}
	return AddressPool{}, bad
}

// Equal reports whether both are the same range.
func (p AddressPool) Equal(o AddressPool) bool { return p == o }

func number(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Size is how many addresses are in the pool.
func (p AddressPool) Size() int {
	if !p.First.IsValid() {
		return 0
	}
	return int(number(p.Last)-number(p.First)) + 1
}

// Has reports whether an address is one of the pool's.
func (p AddressPool) Has(a netip.Addr) bool {
	return p.First.IsValid() && a.Is4() && !a.Less(p.First) && !p.Last.Less(a)
}

// At is an address by its place, from 0 to below Size.
func (p AddressPool) At(place int) netip.Prefix {
	n := number(p.First) + uint32(place)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), p.Bits)
}

// Lease is the lowest address that is not taken; ok is false when all are. taken is asked for addresses with the
// prefix's length.
func (p AddressPool) Lease(taken func(netip.Prefix) bool) (lease netip.Prefix, ok bool) {
	for place := range p.Size() {
		if lease := p.At(place); !taken(lease) {
			return lease, true
		}
	}
	return netip.Prefix{}, false
}

// MAC is the hardware address that belongs to an IPv4 address: unique wherever the address is. Its first byte says that
// it is locally administered and of one card.
func MAC(a netip.Addr) string {
	const digits = "0123456789abcdef"
	text := []byte("52:54")
	for _, b := range a.As4() {
		text = append(text, ':', digits[b>>4], digits[b&15])
	}
	return string(text)
}

// String is the pool as ParseAddressPool reads it.
func (p AddressPool) String() string {
	return p.First.String() + "-" + p.Last.String() + "/" + strconv.Itoa(p.Bits)
}
