package farm

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// AddressPool is a range of addresses in one network.
type AddressPool struct {
	First, Last netip.Addr
	Bits        int // of the network's prefix
}

// MaxAddresses bounds a pool. A network of the fleet may have several.
const MaxAddresses = 1 << 16

// ParseAddressPool reads "10.0.0.20-10.0.0.80/24". The error is a *Error of kind Invalid.
func ParseAddressPool(text string) (AddressPool, error) {
	p, err := ParseAnyAddressPool(text)
	if err == nil && !p.First.Is4() {
		return AddressPool{}, badPool(text, ": IPv4 is needed here")
	}
	return p, err
}

// ParseAnyAddressPool reads one of IPv6 as well, as "2001:db8::20-2001:db8::5c/64".
func ParseAnyAddressPool(text string) (AddressPool, error) {
	first, rest, ok := strings.Cut(text, "-")
	if !ok {
		return AddressPool{}, badPool(text, "")
	}
	last, err := netip.ParsePrefix(rest)
	if err != nil {
		return AddressPool{}, badPool(text, "")
	}
	p := AddressPool{Last: last.Addr(), Bits: last.Bits()}
	p.First, err = netip.ParseAddr(first)
	switch {
	case err != nil || p.First.Is4In6() || p.First.Zone() != "":
		return AddressPool{}, badPool(text, "")
	case !last.Contains(p.First):
		return AddressPool{}, badPool(text, ": both ends must be in one network")
	case p.Last.Less(p.First):
		return AddressPool{}, badPool(text, ": the first comes behind the last")
	case p.span() >= MaxAddresses:
		return AddressPool{}, badPool(text, ": more than 65,536 addresses")
	}
	return p, nil
}

func badPool(text, why string) error {
	return &Error{Kind: Invalid, Code: CodeBadAddress, Message: "addresses " + `"` + text + `"` + why,
		Hint: "write FIRST-LAST/BITS, as 10.0.0.20-10.0.0.80/24"}
}

// Equal reports whether both are the same range.
func (p AddressPool) Equal(o AddressPool) bool { return p == o }

// span is how far the last address is from the first, and MaxAddresses for whatever is farther.
func (p AddressPool) span() int {
	first, last := p.First.As16(), p.Last.As16()
	distance := binary.BigEndian.Uint64(last[8:]) - binary.BigEndian.Uint64(first[8:])
	if [8]byte(first[:8]) != [8]byte(last[:8]) || distance >= MaxAddresses {
		return MaxAddresses
	}
	return int(distance)
}

// Size is how many addresses are in the pool.
func (p AddressPool) Size() int {
	if !p.First.IsValid() {
		return 0
	}
	return p.span() + 1
}

// Has reports whether an address is one of the pool's.
func (p AddressPool) Has(a netip.Addr) bool {
	return p.First.IsValid() && a.Is4() == p.First.Is4() && !a.Less(p.First) && !p.Last.Less(a)
}

// At is an address by its place, from 0 to below Size.
func (p AddressPool) At(place int) netip.Prefix {
	b := p.First.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+uint64(place))
	a := netip.AddrFrom16(b)
	if p.First.Is4() {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, p.Bits)
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
