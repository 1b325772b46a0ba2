package agent

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

// Where a guest finds what its machine and its job are, one value a file, as the technical note HSF-TN-2016-02 of the
// HEP Software Foundation describes it ("Machine/Job Features"). The variables MACHINEFEATURES and JOBFEATURES name the
// directories. The machine is the VM: it is all that the job has.
const (
	machineFeatures = "/etc/grange/machinefeatures"
	jobFeatures     = "/etc/grange/jobfeatures"
)

// benchmarks are facts of the site that count work: of the whole host, so that a VM has its share of them.
var benchmarks = []string{"hs06", "hepscore", "hepscore23"}

// features are the files of a VM that was made at now.
func (a requests) features(r record, ends, now time.Time) []guest.File {
	machine := map[string]string{"total_cpu": strconv.Itoa(r.Shape.CPUs), "jobslots": "1"}
	job := map[string]string{
		"allocated_cpu": strconv.Itoa(r.Shape.CPUs), "jobstart_secs": strconv.FormatInt(now.Unix(), 10),
		"job_id":        r.Job,
		"max_rss_bytes": strconv.FormatUint(uint64(r.Plan.Memory()), 10), "max_swap_bytes": "0",
	}
	if r.Caller.Batch.Job != "" {
		job["job_id"] = r.Caller.Batch.Job
	}
	if r.Shape.Scratch > 0 {
		job["scratch_limit_bytes"] = strconv.FormatUint(uint64(r.Shape.Scratch), 10)
	}
	if ends.After(now) {
		machine["shutdowntime"], job["shutdowntime_job"] = strconv.FormatInt(ends.Unix(),
			10), strconv.FormatInt(ends.Unix(), 10)
		job["wall_limit_secs"] = strconv.FormatInt(int64(ends.Sub(now)/time.Second), 10)
	}
	facts := a.config().Facts
	for key, text := range facts {
		key = strings.ToLower(key)
		whole, err := strconv.ParseFloat(text, 64)
		if all := a.hostCPUs(); err == nil && all > 0 && slices.Contains(benchmarks, key) {
			share := strconv.FormatFloat(whole*float64(r.Shape.CPUs)/float64(all), 'f', 2, 64)
			machine[key], job[key+"_job"] = share, share
		}
	}
	return append(featureFiles(machineFeatures, machine), featureFiles(jobFeatures, job)...)
}

func featureFiles(dir string, values map[string]string) []guest.File {
	var files []guest.File
	for _, key := range slices.Sorted(maps.Keys(values)) {
		files = append(files, guest.File{Path: path.Join(dir, key), Content: []byte(values[key] + "\n")})
	}
	return files
}

// featureVariables tell the job where its features are. What a batch system said of the host's own directories does not
// hold in the VM.
func featureVariables(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "MACHINEFEATURES=") || strings.HasPrefix(kv, "JOBFEATURES=")
	})
	return append(env, fmt.Sprintf("MACHINEFEATURES=%s", machineFeatures), fmt.Sprintf("JOBFEATURES=%s", jobFeatures))
}

// jobEnds is when the batch system will end the job, if it told.
func (a requests) jobEnds(b farm.Allotment) time.Time {
	if told, ok := a.lookups.recall(b); ok && b.Ends.IsZero() {
		return told.Ends
	}
	return b.Ends
}
