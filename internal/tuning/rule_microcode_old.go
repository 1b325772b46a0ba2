package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func microcodeOld() Rule {
	return Rule{
		ID:       "microcode-old",
		Title:    "protection is incomplete because the processor's microcode is old",
		Severity: Warning,
		Holds: "Hosts on bare metal whose kernel reports \"no microcode\", or old_microcode as vulnerable (Linux 6.16 " +
			"and later).",
		Cost: "Security: guests may read what is not theirs, though the kernel pays for clearing buffers that " +
			"the processor does not clear.",
		Sources: []Source{
			kernelDoc("admin-guide/hw-vuln/mds",
				"without updated microcode the kernel tries to clear the buffers without a guarantee that it works"),
			kernelDoc("admin-guide/hw-vuln/old_microcode",
				"the system is open to some known flaw, of security or function; microcode comes with the "+
					"distribution's updates"),
		},
		Why: "Much of the protection against speculative attacks lives in the processor: the kernel runs an " +
			"instruction, and microcode makes it clear the buffers. With old microcode the instruction does nothing " +
			"of the kind, and the kernel says so in " +
			"/sys/devices/system/cpu/vulnerabilities. Microcode is loaded from the initramfs at each boot; firmware " +
			"updates bring it too.",
		Fix: "Install the distribution's microcode package (microcode_ctl, intel-microcode, amd64-microcode), " +
			"make the initramfs anew, and reboot.",
		Danger: "New microcode may cost some speed; measure on one host first.",
		Undo:   "Go back to the old package; microcode of the firmware stays.",
		Check:  checkMicrocodeOld,
	}
}

func checkMicrocodeOld(h farm.HostFacts, _ Profile) []Finding {
	if h.Virtual {
		return nil // the host below must be updated
	}
	var names []string
	for name, text := range h.Vulnerabilities {
		if strings.Contains(strings.ToLower(text), "no microcode") || name == "old_microcode" &&
			strings.HasPrefix(text, "Vulnerable") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []Finding{{Severity: Warning, Where: "host", Wanted: "microcode with all protections",
		Got:    fmt.Sprintf("missing for %s", strings.Join(names, ", ")),
		Manual: "update the microcode package and reboot"}}
}
