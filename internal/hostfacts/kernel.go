package hostfacts

import (
	"cmp"
	"path"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

const clockDir = "sys/devices/system/clocksource/clocksource0"

func (r *reader) kernel() farm.Kernel {
	k := farm.Kernel{Release: r.word("proc/sys/kernel/osrelease"), Command: r.word("proc/cmdline"),
		Clock:  r.word(clockDir + "/current_clocksource"),
		Clocks: strings.Fields(r.word(clockDir + "/available_clocksource"))}
	if fields := strings.Fields(r.word("proc/version")); k.Release == "" && len(fields) > 2 && fields[0] == "Linux" &&
		fields[1] == "version" {
		k.Release = fields[2]
	}
	k.BootFile, k.NextBoot = r.nextBoot()
	return k
}

const grubDefaults = "etc/default/grub"

// nextBoot is where the next command line is written, and what is written there. kernel-install's file goes before
// GRUB's own: where both are, new boot entries are made from it. A generated grub.cfg is looked at only where nothing
// else is.
func (r *reader) nextBoot() (file, command string) {
	if text, ok := r.Text("etc/kernel/cmdline"); ok {
		return "etc/kernel/cmdline", strings.Join(strings.Fields(text), " ")
	}
	if file, set := r.grubDefaults(); file != "" {
		// in the order in which grub-mkconfig puts them
		both := set["GRUB_CMDLINE_LINUX"] + " " + set["GRUB_CMDLINE_LINUX_DEFAULT"]
		return file, strings.Join(strings.Fields(both), " ")
	}
	for _, file := range []string{"boot/grub2/grub.cfg", "boot/grub/grub.cfg", "boot/grub/grub.conf",
		"boot/grub/menu.lst"} {
		if command, ok := bootEntry(r.lines(file)); ok {
			return file, command
		}
	}
	return "", ""
}

// grubDefaults reads what grub-mkconfig reads: /etc/default/grub, which Debian's package makes only where somebody
// configures it, and the files of grub.d, which images of clouds and installers bring. file is "" where neither is
// there.
func (r *reader) grubDefaults() (file string, set map[string]string) {
	set = map[string]string{}
	if text, ok := r.Text(grubDefaults); ok {
		file = grubDefaults
		assignments(text, set)
	}
	for _, name := range r.Names(grubDefaults + ".d") {
		if strings.HasSuffix(name, ".cfg") {
			file = cmp.Or(file, grubDefaults+".d")
			assignments(r.word(grubDefaults+".d/"+name), set)
		}
	}
	return file, set
}

// bootEntry is the command line of the first kernel that a boot menu names.
func bootEntry(lines []string) (string, bool) {
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "linux", "linux16", "linuxefi", "kernel":
			if name := path.Base(fields[1]); strings.HasPrefix(name, "vmlinu") || strings.HasPrefix(name, "bzImage") {
				return strings.Join(fields[2:], " "), true
			}
		}
	}
	return "", false
}
