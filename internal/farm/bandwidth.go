package farm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rate is bits a second. Its units are decimal, as those of cards and links are.
type Rate uint64

// Limits of what a VM may ask for: below the least a burst of a few frames is all of it, and above the most, nftables
// cannot count.
const (
	MinRate Rate = 1e6
	MaxRate Rate = 100e9
)

var rateUnits = []struct {
	suffix string
	unit   Rate
}{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"K", 1e3}}

// ParseRate reads "100M", "2.5G", "10Gbit/s", "1000000". The error is a *Error of kind Invalid.
func ParseRate(s string) (Rate, error) {
	text, unit := strings.ToUpper(strings.TrimSpace(s)), Rate(1)
	for _, word := range []string{"BIT/S", "BIT"} {
		text = strings.TrimSpace(strings.TrimSuffix(text, word))
	}
	for _, u := range rateUnits {
		if cut, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = cut, u.unit
			break
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	v := math.Round(n * float64(unit))
	if err != nil || math.IsNaN(v) || v < 0 || v >= 1<<62 {
		return 0, &Error{Kind: Invalid, Code: CodeBadRate, Message: fmt.Sprintf("%q is not a bandwidth", s),
			Hint: "write bits a second, for example 100M, 2.5G or 10G"}
	}
	return Rate(v), nil
}

// String gives the shortest exact form: "10G", "2500M", "1".
func (r Rate) String() string {
	for _, u := range rateUnits {
		if r != 0 && r%u.unit == 0 {
			return strconv.FormatUint(uint64(r/u.unit), 10) + u.suffix
		}
	}
	return strconv.FormatUint(uint64(r), 10)
}

// Bandwidth is what a VM may receive and send. 0 is not limited, and books nothing.
type Bandwidth struct{ In, Out Rate }

// ParseBandwidth reads both, as a file of shapes has them; "" is not limited. The error is a *Error of kind Invalid.
func ParseBandwidth(in, out string) (b Bandwidth, err error) {
	for _, x := range []struct {
		key, text string
		to        *Rate
	}{{"bandwidth_in", in, &b.In}, {"bandwidth_out", out, &b.Out}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = ParseRate(x.text); err != nil {
			return b, fmt.Errorf("%s: %w", x.key, err)
		}
	}
	return b, nil
}

// Plus is both together.
func (b Bandwidth) Plus(c Bandwidth) Bandwidth { return Bandwidth{b.In + c.In, b.Out + c.Out} }

// Minus is what is left of b without c, which is in it.
func (b Bandwidth) Minus(c Bandwidth) Bandwidth { return Bandwidth{b.In - c.In, b.Out - c.Out} }

// Beyond is b without the directions in which there is as much already.
func (b Bandwidth) Beyond(has Bandwidth) Bandwidth {
	if b.In <= has.In {
		b.In = 0
	}
	if b.Out <= has.Out {
		b.Out = 0
	}
	return b
}

// Fits reports whether a host whose network carries that much each way has room for b beside what is booked. Where
// nothing is asked for, there is room.
func (b Bandwidth) Fits(carries Rate, booked Bandwidth) bool {
	return (b.In == 0 || booked.In+b.In <= carries) && (b.Out == 0 || booked.Out+b.Out <= carries)
}

func (b Bandwidth) validate() error {
	for _, r := range []Rate{b.In, b.Out} {
		if r != 0 && (r < MinRate || r > MaxRate) {
			return badShape("%vbit/s of bandwidth; the least is %vbit/s, the most %vbit/s", r, MinRate, MaxRate)
		}
	}
	return nil
}

// CheckBandwidth refuses a bandwidth where nothing on the host could hold a VM to it. The error is a *Error of kind
// Invalid.
func (s Shape) CheckBandwidth() error {
	if kind, _ := s.Network.Kind(); s.Bandwidth == (Bandwidth{}) || kind.Limited {
		return nil
	}
	return &Error{Kind: Invalid, Code: CodeNotLimited,
		Message: fmt.Sprintf("a bandwidth is asked for, or in its shape, and that of a VM with network %s cannot be "+
			"limited", s.Network),
		Hint: "give it a network that is a bridge, VLAN or VXLAN, or leave the bandwidth out"}
}
