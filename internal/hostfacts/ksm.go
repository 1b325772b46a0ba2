package hostfacts

import (
	"math"

	"github.com/grange-project/grange/internal/farm"
)

const ksmDir = "sys/kernel/mm/ksm"

func (r *reader) ksm() farm.KSM {
	run, known := r.Number(ksmDir+"/run", 2)
	if !known {
		return farm.KSM{}
	}
	count := func(name string) int64 { return int64(r.count(ksmDir+"/"+name, math.MaxInt64)) }
	return farm.KSM{Known: true, Run: run, Shared: count("pages_shared"), Sharing: count("pages_sharing"),
		Unshared: count("pages_unshared"), Passes: count("full_scans"), PagesToScan: count("pages_to_scan"),
		SleepMillis: count("sleep_millisecs"), MergeAcrossNodes: farm.Switch(r.word(ksmDir + "/merge_across_nodes"))}
}

// thpDirs are where transparent huge pages are set: mainline's, and that of Red Hat's 2.6.32.
var thpDirs = []string{"sys/kernel/mm/transparent_hugepage", "sys/kernel/mm/redhat_transparent_hugepage"}

func (r *reader) thp() farm.THP {
	for _, dir := range thpDirs {
		if enabled := r.chosen(dir + "/enabled"); enabled != "" {
			size := dir + "/hugepages-2048kB/"
			return farm.THP{Enabled: enabled, Defrag: r.chosen(dir + "/defrag"),
				Shmem: r.chosen(dir + "/shmem_enabled"), SizeEnabled: r.chosen(size + "enabled"),
				SizeShmem: r.chosen(size + "shmem_enabled")}
		}
	}
	return farm.THP{}
}
