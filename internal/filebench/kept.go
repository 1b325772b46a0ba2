package filebench

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/internal/diskbench"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench/load"
)

// Measurement is what was measured for one type of file systems.
type Measurement struct {
	Time        time.Time               `json:"time"`
	Command     string                  `json:"command"`
	Kernel      string                  `json:"kernel"`
	Accelerator string                  `json:"accelerator"` // of the VMs
	FileSystem  string                  `json:"file_system"` // type of the directory's
	Results     []Median                `json:"results"`
	Verdict     diskbench.Verdict       `json:"verdict"`
	Left        map[farm.Gateway]string `json:"left_out,omitempty"` // gateways without results, and why
}

// Kept is what was measured on a host, by type of file systems, as it lies beside the host's other facts.
type Kept struct {
	Version     int                    `json:"version"`
	FileSystems map[string]Measurement `json:"file_systems"`
}

const keptFile = "gateway-bench.json"

// KeptFile is where a host whose agent has its state in a directory keeps its Kept.
func KeptFile(stateDir string) string { return filepath.Join(stateDir, keptFile) }

// maxKept bounds what is read of it.
const maxKept = 4 << 20

// ReadKept reads a host's; one without a file has measured nothing.
func ReadKept(stateDir string) (k Kept, err error) {
	k = Kept{Version: 1, FileSystems: map[string]Measurement{}}
	f, err := os.Open(KeptFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKept))
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if k.FileSystems == nil {
		k.FileSystems = map[string]Measurement{}
	}
	return k, err
}

// Scores are how fast each gateway was over all phases, as a geometric mean: they have a meaning beside each other
// alone. A gateway that lacks a phase has none.
func (m Measurement) Scores() map[farm.Gateway]float64 {
	sums, counts := map[farm.Gateway]float64{}, map[farm.Gateway]int{}
	for _, r := range m.Results {
		if r.Rate > 0 && !math.IsInf(r.Rate, 1) {
			sums[farm.Gateway(r.Gateway)] += math.Log(r.Rate)
			counts[farm.Gateway(r.Gateway)]++
		}
	}
	scores := map[farm.Gateway]float64{}
	for g, n := range counts {
		if n == len(load.Phases) {
			scores[g] = math.Exp(sums[g] / float64(n))
		}
	}
	return scores
}
