// Package features tells a job in a VM what its machine and itself are, in files with one value each, as the technical
// note HSF-TN-2016-02 of the HEP Software Foundation describes it ("Machine/Job Features"). It is pure.
package features

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

// Directories in the guest, which the variables MACHINEFEATURES and JOBFEATURES name. The machine is the VM: it is all
// that the job has.
const (
	machineDir = "/etc/grange/machinefeatures"
	jobDir     = "/etc/grange/jobfeatures"
)

// VM is a VM with its job.
type VM struct {
	Shape    farm.Shape
	Memory   farm.Bytes        // as planned
	Job      string            // its number in the batch system, or its ID
	Ends     time.Time         // when the batch system will end the job; zero: nobody knows
	Now      time.Time         // when the job begins
	Site     map[string]string // facts of the host's configuration
	HostCPUs int
}

// benchmarks are facts of the site that count work: of the whole host, so that a VM has its share of them.
var benchmarks = []string{"hs06", "hepscore", "hepscore23"}

// Files are those of a VM.
func Files(v VM) []guest.File {
	machine := map[string]string{"total_cpu": strconv.Itoa(v.Shape.CPUs), "jobslots": "1"}
	job := map[string]string{
		"allocated_cpu": strconv.Itoa(v.Shape.CPUs), "jobstart_secs": strconv.FormatInt(v.Now.Unix(), 10),
		"job_id":         v.Job,
		"max_rss_bytes":  strconv.FormatUint(uint64(v.Memory), 10),
		"max_swap_bytes": strconv.FormatUint(uint64(v.Shape.Disks.Swap), 10),
	}
	if scratch := scratchOf(v.Shape); scratch > 0 {
		job["scratch_limit_bytes"] = strconv.FormatUint(uint64(scratch), 10)
	}
	if v.Ends.After(v.Now) {
		ends := strconv.FormatInt(v.Ends.Unix(), 10)
		machine["shutdowntime"], job["shutdowntime_job"] = ends, ends
		job["wall_limit_secs"] = strconv.FormatInt(int64(v.Ends.Sub(v.Now)/time.Second), 10)
	}
	for key, text := range v.Site {
		key = strings.ToLower(key)
		whole, err := strconv.ParseFloat(text, 64)
		if err == nil && v.HostCPUs > 0 && slices.Contains(benchmarks, key) {
			share := strconv.FormatFloat(whole*float64(v.Shape.CPUs)/float64(v.HostCPUs), 'f', 2, 64)
			machine[key], job[key+"_job"] = share, share
		}
	}
	return append(files(machineDir, machine), files(jobDir, job)...)
}

// scratchOf is what a job may write on disks that are its VM's own and empty at its start: /tmp and all volumes.
func scratchOf(s farm.Shape) farm.Bytes {
	sum := s.Scratch
	for _, v := range s.Disks.Volumes {
		sum += v.Size
	}
	return sum
}

func files(dir string, values map[string]string) []guest.File {
	var all []guest.File
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, guest.File{Path: path.Join(dir, key), Content: []byte(values[key] + "\n")})
	}
	return all
}

// Variables is an environment that tells the job where its features are. What a batch system said of the host's own
// directories does not hold in the VM.
func Variables(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "MACHINEFEATURES=") || strings.HasPrefix(kv, "JOBFEATURES=")
	})
	return append(env, fmt.Sprintf("MACHINEFEATURES=%s", machineDir), fmt.Sprintf("JOBFEATURES=%s", jobDir))
}
