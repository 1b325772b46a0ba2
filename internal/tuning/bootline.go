package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// bootParam is one parameter of the kernel's command line. Value is "" for a bare word.
type bootParam struct{ name, value string }

// bootParams lists the parameters for the kernel: those behind "--" are for the first process.
func bootParams(line string) []bootParam {
	var out []bootParam
	for _, field := range strings.Fields(line) {
		if field == "--" {
			break
		}
		name, value, _ := strings.Cut(field, "=")
		out = append(out, bootParam{name, strings.Trim(value, `"`)})
	}
	return out
}

// sameParam reports whether two names are one to the kernel, which takes dashes for underscores.
func sameParam(a, b string) bool {
	return strings.ReplaceAll(a, "-", "_") == strings.ReplaceAll(b, "-", "_")
}

// bootValue is the last value of a parameter: the one that counts where it is given twice.
func bootValue(line, name string) (value string, ok bool) {
	for _, p := range bootParams(line) {
		if sameParam(p.name, name) {
			value, ok = p.value, true
		}
	}
	return value, ok
}

// nextLine is the command line of the next boot, or the present one where the next is not known.
func nextLine(k farm.Kernel) string {
	if k.BootFile != "" {
		return k.NextBoot
	}
	return k.Command
}

// pageParams is what a command line says about huge pages, to compare two lines.
func pageParams(line string) string {
	var b strings.Builder
	for _, p := range bootParams(line) {
		switch p.name {
		case "hugepagesz", "default_hugepagesz", "hugepages":
			b.WriteString(p.name + "=" + p.value + " ")
		}
	}
	return b.String()
}

// pagesChangeAtBoot reports whether the next boot will reserve other huge pages than this one did. A file that says
// nothing of huge pages plans nothing: what the running kernel was given may come from elsewhere.
func pagesChangeAtBoot(k farm.Kernel) bool {
	return k.BootFile != "" && pageParams(k.NextBoot) != "" && pageParams(k.NextBoot) != pageParams(k.Command)
}
