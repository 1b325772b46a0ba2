package farm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory or disk, in bytes.
type Bytes uint64

// Binary multiples. A plain "G" on the command line means GiB, as in every batch system.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var byteUnits = []struct {
	suffix string
	unit   Bytes
}{{"T", TiB}, {"G", GiB}, {"M", MiB}, {"K", KiB}}

// ParseBytes reads "512M", "2G", "1.5GiB", "1048576". Units are binary; a bare number is bytes.
func ParseBytes(s string) (Bytes, error) {
	text, unit := strings.ToUpper(strings.TrimSpace(s)), Bytes(1)
	text = strings.TrimSuffix(strings.TrimSuffix(text, "B"), "I")
	for _, u := range byteUnits {
		if cut, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = cut, u.unit
			break
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	v := n * float64(unit)
	if err != nil || math.IsNaN(v) || v < 0 || v >= 1<<62 {
		return 0, &Error{Kind: Invalid, Code: CodeBadSize, Message: fmt.Sprintf("%q is not a size", s),
			Hint: "write for example 512M, 2G or 1.5T (binary units)"}
	}
	return Bytes(v), nil
}

// String gives the shortest exact form: "2G", "1536M", "1000".
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b != 0 && b%u.unit == 0 {
			return strconv.FormatUint(uint64(b/u.unit), 10) + u.suffix
		}
	}
	return strconv.FormatUint(uint64(b), 10)
}

// Rounded is b in whole units of which there are ten or more, for people: exact sizes of real hosts are unreadable.
func (b Bytes) Rounded() Bytes {
	for _, u := range byteUnits[:3] {
		if b >= 10*u.unit {
			return (b + u.unit/2) / u.unit * u.unit
		}
	}
	return b
}
