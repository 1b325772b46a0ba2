package pages

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/chart"
)

// files are what pages are made of. What is vendored keeps its licence beside it; docs/adr/0059 says which releases.
//
//go:embed assets templates
var files embed.FS

// assetsPath is where browsers find what pages load.
const assetsPath = "/assets/"

// assetsSum stands for the content of all assets. It is in their paths, so that they may be kept for good, and a new
// release has new ones.
var assetsSum = sync.OnceValue(func() string {
	sum := sha256.New()
	err := fs.WalkDir(files, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		sum.Write([]byte(name))
		sum.Write(text)
		return err
	})
	if err != nil {
		panic(err) // of files that are in the program
	}
	sum.Write([]byte(chart.Sheet))
	return hex.EncodeToString(sum.Sum(nil))[:16]
})

// asset is the path of an asset.
func asset(name string) string { return assetsPath + assetsSum() + "/" + name }

// assetTypes are the types of assets, which must not depend on the machine.
var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".woff2": "font/woff2", ".LICENSE": "text/plain; charset=utf-8"}

// chartSheet is the name of the style of drawings of hosts.
const chartSheet = "chart.css"

func readAsset(name string) ([]byte, error) {
	if name == chartSheet {
		return []byte(chart.Sheet), nil
	}
	return files.ReadFile("assets/" + name)
}

// plainNames are assets that other pages of the server have by a name that stays: those that sign people in.
var plainNames = map[string]string{"style.css": "grange.css"}

// serveAsset answers with an asset: for good where its path has the sum of all of them, and otherwise as it is now.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	sum, name, summed := strings.Cut(strings.TrimPrefix(r.URL.Path, assetsPath), "/")
	if !summed {
		name = cmp.Or(plainNames[sum], sum)
	}
	text, err := readAsset(name)
	kind := assetTypes[path.Ext(name)]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `"`+assetsSum()+`"`)
	if sum == assetsSum() {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}
