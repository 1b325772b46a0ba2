package daemon

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/hyper/libvirt"
)

func TestSVirt(t *testing.T) {
	for want, c := range map[string]libvirt.Confinement{
		"none: libvirt has no security driver; try: ": {},
		"selinux":                      {Models: []string{"selinux"}, VMs: 2},
		"apparmor, profiles by grange": {Models: []string{"apparmor"}},
		"apparmor, profiles by grange; enforced for 1 of 2 VMs": {Models: []string{"apparmor"}, VMs: 2, Enforced: 1},
		"apparmor, profiles by libvirt: no parser; try: ": {Models: []string{"apparmor"},
			Profile: "no parser; try: a"},
	} {
		if got := svirt(c); !strings.HasPrefix(got, want) || !strings.HasSuffix(want, "try: ") && got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
