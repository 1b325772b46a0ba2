package tuning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// tunedLine is the words about huge pages that tuned's profile puts behind the command line at each boot, and where a
// site changes them; both are empty where there are none.
func tunedLine(h farm.HostFacts) (words, file string) {
	var all []string
	for _, s := range h.Tuned {
		if s.Path != "proc/cmdline" {
			continue
		}
		if params := strings.TrimSpace(pageParams(strings.TrimLeft(s.Value, "+"))); params != "" && !strings.HasPrefix(s.Value, "-") {
			all, file = append(all, params), s.File
		}
	}
	return strings.Join(all, " "), file
}

// tunedPages finds huge pages on the command line of which tuned's profile sets a part.
func tunedPages(h farm.HostFacts, add func(where, wanted, got string)) {
	extra, file := tunedLine(h)
	line := strings.TrimSpace(pageParams(nextLine(h.Kernel)))
	if extra == "" || line == "" || !runsOrStarts(h, "tuned") {
		return
	}
	pools, dropped := readPages(h, line+" "+extra)
	var wins []string
	for _, p := range pools {
		wins = append(wins, fmt.Sprintf("%d pages of %s", p.total, pageName(p.size)))
	}
	got := fmt.Sprintf("[bootloader] puts %q behind %q of %s: the kernel then reserves %s", extra, line,
		bootPlace(h.Kernel), strings.Join(wins, " and "))
	for _, d := range dropped {
		got += "; " + d.got
	}
	add("/"+file, "huge pages in one of /"+file+" and "+bootPlace(h.Kernel), got)
}

// setPages is one place that sets the number of huge pages of the default size at each boot.
type setPages struct {
	place string
	count int
}

// pagePlaces are the places that set that number, in the order in which they are applied.
func pagePlaces(h farm.HostFacts) (out []setPages, size farm.Bytes) {
	line := pagesLine(h.Kernel)
	if extra, _ := tunedLine(h); extra != "" && runsOrStarts(h, "tuned") {
		line += " " + extra
	}
	size = kernelPage(h)
	if text, ok := bootValue(line, "default_hugepagesz"); ok && memparse(text) > 0 {
		size = memparse(text)
	}
	for _, p := range bootPools(h, line) {
		if p.size == size {
			out = append(out, setPages{bootPlace(h.Kernel), p.total})
		}
	}
	add := func(place, value string) {
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			out = append(out, setPages{place, n})
		}
	}
	addTuned := func(overruled bool) {
		for _, s := range h.Tuned {
			if s.Path == "proc/sys/vm/nr_hugepages" && s.Overruled == overruled && runsOrStarts(h, "tuned") {
				add("/"+s.File, tunedWrites(s))
			}
		}
	}
	addTuned(true)
	for _, s := range h.PagesSet {
		add("/"+s.File, s.Value)
	}
	addTuned(false)
	return out, size
}

// pagesSetTwice finds places that set the number of huge pages to different values: all of them, the one that is
// applied last, and what the host has where that is another number.
func pagesSetTwice(h farm.HostFacts, add func(where, wanted, got string)) {
	places, size := pagePlaces(h)
	elsewhere := func(p setPages) bool { return p.place != places[0].place }
	other := func(p setPages) bool { return p.count != places[0].count }
	if !slices.ContainsFunc(places, elsewhere) || !slices.ContainsFunc(places, other) {
		return
	}
	last := places[len(places)-1]
	var texts []string
	for _, p := range places {
		texts = append(texts, fmt.Sprintf("%s sets %d", p.place, p.count))
	}
	got := fmt.Sprintf("pages of %s: %s; %s is applied last and wins at each boot", pageName(size),
		strings.Join(texts, ", "), last.place)
	if i := slices.IndexFunc(h.Pages, func(p farm.PagePool) bool { return p.Size == size }); i >= 0 {
		now := h.Pages[i].Total - h.Pages[i].Surplus
		if !slices.ContainsFunc(places, func(p setPages) bool { return p.count == now }) {
			got += fmt.Sprintf("; now there are %d, which none of them sets", now)
		} else if now != last.count {
			got += fmt.Sprintf("; now there are %d", now)
		}
	}
	add(last.place, "one place that sets the number of huge pages", got)
}
