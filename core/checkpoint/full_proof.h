// What `proof: full` adds to a conversion: SHA-256 of every tensor as it is stored in the source and in the result,
// read again from the files, and how often each code occurs, summed for each kind of weight.
//
//   INVAR_TRY(prove_fully(folder, outputs, path_of_written_file, context, memory, workers, &report));
//
// Thread rule: as convert().
#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/convert.h"
#include "core/checkpoint/convert_report.h"

namespace invar {

// Of the outputs that lie in the written `file`. Sets their digests, and adds to `report` its histograms, proof_bytes
// and proof_seconds. Each worker takes 2 MiB.
Status prove_fully(const CheckpointFolder& source, const std::vector<ConvertedOutput*>& outputs,
                   const std::string& file, const WorkContext& context, int workers, v1::ConvertReport* report);

// Adds the histograms, bytes and seconds of one report to another.
void merge_full_proof(const v1::ConvertReport& from, v1::ConvertReport* to);

}  // namespace invar
