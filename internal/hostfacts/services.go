package hostfacts

import (
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// maxComm is how much of a program's name the kernel keeps (TASK_COMM_LEN less the zero byte).
const maxComm = 15

// watched are the daemons that matter to VMs, with the units that start them where those are called otherwise.
var watched = map[string][]string{
	"numad": nil, "ksmtuned": nil, "ksm": nil, "tuned": nil, "irqbalance": nil, "abrtd": nil, "systemd-oomd": nil,
	"earlyoom":              nil,
	"power-profiles-daemon": nil,
	"libvirtd":              nil,
	"virtqemud":             nil,
	"chronyd":               {"chrony"},
	"ntpd":                  {"ntp", "ntpsec"},
}

// services are the daemons of a host.
type services struct{ *reader }

// read returns each watched daemon that runs or is started at boot.
func (r services) read() map[string]farm.Service {
	running, enabled := r.running(), r.enabled()
	out := map[string]farm.Service{}
	for name, units := range watched {
		s := farm.Service{Running: running[name[:min(len(name), maxComm)]]}
		for _, unit := range append([]string{name}, units...) {
			s.Enabled = s.Enabled || enabled[unit]
		}
		if s.Running || s.Enabled {
			out[name] = s
		}
	}
	return out
}

// running lists the names of processes.
func (r services) running() map[string]bool {
	out := map[string]bool{}
	for _, name := range r.Names("proc") {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			if comm := r.word("proc/" + name + "/comm"); comm != "" {
				out[comm] = true
			}
		}
	}
	return out
}

const unitDir = "etc/systemd/system"

// enabled lists what is started at boot: systemd's services and sockets without their ending, and links of System V
// init.
func (r services) enabled() map[string]bool {
	out := map[string]bool{}
	for _, dir := range r.Names(unitDir) {
		if !strings.HasSuffix(dir, ".wants") && !strings.HasSuffix(dir, ".requires") {
			continue
		}
		for _, unit := range r.Names(unitDir + "/" + dir) {
			for _, kind := range []string{".service", ".socket"} {
				if name, ok := strings.CutSuffix(unit, kind); ok && !r.masked(unit) {
					out[name] = true
				}
			}
		}
	}
	for _, dir := range []string{"etc/rc3.d", "etc/rc.d/rc3.d"} {
		for _, link := range r.Names(dir) {
			if len(link) > 3 && link[0] == 'S' && strings.Trim(link[1:3], "0123456789") == "" {
				out[link[3:]] = true
			}
		}
	}
	return out
}

// masked reports whether a unit is linked to /dev/null: it then starts for nobody.
func (r services) masked(unit string) bool {
	target, err := r.Link(unitDir + "/" + unit)
	return err == nil && target == "/dev/null"
}
