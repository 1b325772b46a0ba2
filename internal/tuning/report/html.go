package report

import (
	"io"

	"github.com/grange-project/grange/internal/tuning"
)

// HTML is being written.
func HTML(w io.Writer, r tuning.Report, about About) error { return JSON(w, r, about) }
