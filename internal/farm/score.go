package farm

import (
	"math"
	"strings"
)

// tuningDigits is how long the digest of a state of tuning is.
const tuningDigits = 12

// Score is how much a core does, as the site has measured it in VMs of a size on hardware of a kind.
type Score struct {
	Name     string
	Hardware string  // kind of host, as amd-epyc-7302-2s
	CPUs     int     // of the VM; 0: any size for which there is no other
	Tuning   string  // digest of how the host is tuned, as records of usage have it; "": any state, as with CPUs
	Core     float64 // of one core
	Unit     string  // as HEPscore23
	Source   string  // who measured it, when and how
}

// Validate refuses a score that nobody could check.
func (s Score) Validate() error {
	switch {
	case CheckName("score", s.Name) != nil:
		return CheckName("score", s.Name)
	case s.Hardware == "" || unprintable(s.Hardware):
		return badFarm("score", s.Name, "hardware: name a kind of host, as `grange host list` shows it")
	case s.CPUs < 0 || s.CPUs > MaxCPUs:
		return badFarm("score", s.Name, "cpus: no VM has %d", s.CPUs)
	case s.Tuning != "" && (len(s.Tuning) != tuningDigits || strings.Trim(s.Tuning, "0123456789abcdef") != ""):
		return badFarm("score", s.Name, "tuning: %.20q is no state of a host, as `grange bench scores` writes it", s.Tuning)
	case !(s.Core > 0) || math.IsInf(s.Core, 0) || s.Core > 1e9:
		return badFarm("score", s.Name, "core: invalid score %v", s.Core)
	case s.Unit == "" || unprintable(s.Unit):
		return badFarm("score", s.Name, "unit: name what was measured, as HEPscore23")
	case s.Source == "" || unprintable(s.Source):
		return badFarm("score", s.Name, "source: say who measured it, when and how")
	}
	return nil
}
