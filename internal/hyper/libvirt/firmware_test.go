package libvirt

import (
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// TestFirmware: each kind of machine gets the firmware that can start it.
func TestFirmware(t *testing.T) {
	all := host{qboot: "/qboot", ovmf: "/ovmf"}
	kernel, uefi := hyper.Boot{Kernel: "/k", UEFI: true}, hyper.Boot{UEFI: true}
	for name, c := range map[string]struct {
		host host
		boot hyper.Boot
		want string
		code farm.Code
	}{
		"a kernel":               {all, kernel, "/qboot", ""},
		"a kernel without qboot": {host{ovmf: "/ovmf"}, kernel, "", ""},
		"a disk":                 {all, hyper.Boot{}, "", ""},
		"a disk for UEFI":        {all, uefi, "/ovmf", ""},
		"no UEFI here":           {host{qboot: "/qboot"}, uefi, "", hyper.CodeNoFirmware},
	} {
		d := libvirtxml.Domain{OS: &libvirtxml.DomainOS{}}
		err := c.host.firmware(&d, hyper.Machine{Boot: c.boot})
		got := ""
		if l := d.OS.Loader; l != nil {
			got = l.Path
			if l.Type != "rom" || l.Readonly != "yes" || l.Secure != "" {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if got != c.want || c.code == "" && err != nil || c.code != "" && !farm.IsCode(err, c.code) {
			t.Errorf("%s: firmware %q, %v", name, got, err)
		}
	}
}
