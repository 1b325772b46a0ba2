package farm

// Errors of Grid Engine.
const CodeQconf Code = "qconf-refused" // Grid Engine does not take a change of its configuration
