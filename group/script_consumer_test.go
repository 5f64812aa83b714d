package group

import "fmt"

func printConsumerValue(kind int16, b []byte) string { return fmt.Sprintf("%x", b) }
