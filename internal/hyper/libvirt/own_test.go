package libvirt

import (
	"io/fs"
	"strings"
	"testing"
)

func TestGroupFor(t *testing.T) {
	const own, qemu, kvm, job = 2113929300, 64055, 108, 20017
	lib := func(mode uint32) need {
		return need{"/lib", qemu, fs.ModeDir | fs.FileMode(mode), 0o1, "chmod o+x /lib"}
	}
	dev := func(mode uint32) need { return need{"/dev/kvm", kvm, fs.FileMode(mode), 0o6, "chmod"} }
	rootsDev := need{"/dev/kvm", 0, 0o660, 0o6, "chgrp"}
	for name, c := range map[string]struct {
		tracked uint32
		qemu    uint32
		needs   []need
		gid     uint32
		why     string
	}{
		"emulation":                         {0, qemu, []need{lib(0o755)}, own, ""},
		"nothing is needed":                 {0, qemu, nil, own, ""},
		"KVM for all":                       {0, qemu, []need{lib(0o751), dev(0o666)}, own, ""},
		"KVM for its group":                 {0, qemu, []need{lib(0o751), dev(0o660)}, kvm, ""},
		"QEMU's group has both":             {0, kvm, []need{{"/lib", kvm, 0o750, 0o1, ""}, dev(0o660)}, kvm, ""},
		"no group has both":                 {0, qemu, []need{lib(0o750), dev(0o660)}, 0, "/lib"},
		"a closed directory, emulation":     {0, qemu, []need{lib(0o750)}, qemu, ""},
		"root's KVM":                        {0, qemu, []need{lib(0o755), rootsDev}, 0, "/dev/kvm"},
		"a group that is shut out":          {0, qemu, []need{{"/lib", qemu, 0o705, 0o1, ""}}, own, ""},
		"a batch system's group":            {job, qemu, []need{lib(0o755), dev(0o666)}, job, ""},
		"a batch system's group, emulation": {job, qemu, []need{lib(0o755)}, job, ""},
		"a batch system's group, no KVM":    {job, qemu, []need{lib(0o755), dev(0o660)}, 0, "/dev/kvm"},
	} {
		gid, why := groupFor(own, c.tracked, c.qemu, c.needs)
		if gid != c.gid || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: group %d, %q; want %d, %q", name, gid, why, c.gid, c.why)
		}
	}
}
