package imagerecipe

import (
	"fmt"
	"strings"
)

// release is one of guests whose kernel needs parameters in a VM.
type release struct {
	family     string // "rhel": Red Hat Enterprise Linux, CentOS and Scientific Linux
	version    string // "5.3"
	bits       int    // of its programs
	parameters string
	source     string
}

const timing = "https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/6/html/" +
	"virtualization_host_configuration_and_guest_installation_guide/" +
	"form-virtualization_host_configuration_and_guest_installation_guide-kvm_guest_timing_management-" +
	"required_parameters_for_rhel_guests"

// releases need parameters. Those that know kvm-clock, which are 5.5 and all later ones, need none. divider=10 was
// recommended for these and is not any more: it may have them panic (the same source).
var releases = []release{
	{"rhel", "5.3", 64, "notsc", timing},
	{"rhel", "5.4", 64, "notsc", timing},
	{"rhel", "5.3", 32, "clocksource=acpi_pm", timing},
	{"rhel", "5.4", 32, "clocksource=acpi_pm", timing},
}

// auto stands in a recipe for the parameters that releases have.
const auto = "auto"

// parameterLines are what apply.sh chooses from: FAMILY VERSION BITS PARAMETER…, or "* * *" for any.
func (r Recipe) parameterLines() string {
	var lines strings.Builder
	for _, p := range r.Parameters {
		if p != auto {
			fmt.Fprintln(&lines, "* * *", p)
			continue
		}
		for _, known := range releases {
			fmt.Fprintln(&lines, known.family, known.version, known.bits, known.parameters)
		}
	}
	return lines.String()
}
