package topology

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// noKind are words of a processor's name that tell nothing of its kind.
var noKind = lazyregexp.New(
	`(?i)\((r|tm)\)|@.*$|\b(\d+|two|four|six|eight|twelve|sixteen)-core\b|\b(cpu|processor|with radeon.*)\b|\b(genuine|authentic)(intel|amd)\b`)

// Kind names what hardware the host is, so that people can ask for it: vendor, model and sockets, as
// "amd-epyc-7302-2s".
func Kind(t farm.Topology) string {
	vendor := map[string]string{"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}[t.CPU.Vendor]
	if vendor == "" {
		vendor = strings.ToLower(t.CPU.Vendor)
	}
	model := strings.ToLower(noKind.ReplaceAllString(t.CPU.Name, " "))
	words := strings.FieldsFunc(vendor+" "+strings.ReplaceAll(model, vendor, " "), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	if n := len(t.Sockets); n > 0 {
		words = append(words, fmt.Sprintf("%ds", n))
	}
	return strings.Join(words, "-")
}
